package task

import (
	"fmt"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// FoundRef is a reference to another entity, found in a step document.
type FoundRef struct {
	Ref     Ref
	Path    string // with indexes: artifacts[1].id
	ID      string
	Version int64 // 0 = not pinned
}

// FindRefs returns the references that a step document of this type holds, in the order of the type's declarations. Absent
// and null fields hold none.
func (k *StepType) FindRefs(step *doc.Object) []FoundRef {
	var all []FoundRef
	_, err := k.RewriteRefs(step, func(f FoundRef) (string, int64, error) {
		all = append(all, f)
		return f.ID, f.Version, nil
	})
	if err != nil {
		return nil // rewriting a reference to itself cannot fail
	}
	return all
}

// RewriteRefs returns a copy of a step document in which each reference is replaced by what to returns: an id, and a version
// to pin it to (0 leaves it without one). step is not changed. Pinning where the document has no room for a version
// (a bare list, a declaration without a version field) is an Invalid error; an error of to ends the work and is returned.
func (k *StepType) RewriteRefs(step *doc.Object, to func(FoundRef) (id string, version int64, err error)) (*doc.Object, error) {
	out := step
	for _, ref := range k.Refs {
		w := refWalk{ref: ref, to: to}
		var next any
		if ref.Walk != "" {
			v, there := out.Get(ref.Walk)
			if !there {
				continue
			}
			next = out.Clone().Set(ref.Walk, w.anywhere(v, ref.Walk))
		} else {
			next = w.follow(out, strings.Split(ref.Path, "."), "")
		}
		if w.err != nil {
			return nil, w.err
		}
		out = next.(*doc.Object)
	}
	return out, nil
}

type refWalk struct {
	ref Ref
	to  func(FoundRef) (string, int64, error)
	err error
}

// anywhere looks for the path in every object at and below v.
func (w *refWalk) anywhere(v any, at string) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = w.anywhere(x, fmt.Sprintf("%s[%d]", at, i))
		}
		return out
	case *doc.Object:
		out := w.follow(v, strings.Split(w.ref.Path, "."), at).(*doc.Object)
		for _, k := range out.Keys() {
			switch x := out.Value(k).(type) {
			case *doc.Object, []any:
				if next := w.anywhere(x, at+"."+k); !doc.Same(next, x) {
					out = out.Clone().Set(k, next)
				}
			}
		}
		return out
	}
	return v
}

// follow returns v with the references along a path rewritten.
func (w *refWalk) follow(v any, path []string, at string) any {
	o, ok := v.(*doc.Object)
	if !ok || w.err != nil {
		return v
	}
	key, each := strings.CutSuffix(path[0], "[]")
	child := o.Value(key)
	if child == nil {
		return v
	}
	name := key
	if at != "" {
		name = at + "." + key
	}
	if each {
		list, ok := child.([]any)
		if !ok {
			return v
		}
		out := make([]any, len(list))
		for i, x := range list {
			here := fmt.Sprintf("%s[%d]", name, i)
			if len(path) > 1 {
				out[i] = w.follow(x, path[1:], here)
				continue
			}
			out[i] = w.bare(x, here)
		}
		return o.Clone().Set(key, out)
	}
	if len(path) > 1 {
		return o.Clone().Set(key, w.follow(child, path[1:], name))
	}
	return w.keyed(o, key, name)
}

func (w *refWalk) bare(v any, at string) any {
	id, ok := v.(string)
	if !ok || w.err != nil {
		return v
	}
	next, version, err := w.to(FoundRef{Ref: w.ref, Path: at, ID: id})
	if w.err = err; err == nil && version != 0 {
		w.err = fault.New(fault.Invalid, "%s: an id in a bare list cannot be pinned to a version", at)
	}
	return next
}

func (w *refWalk) keyed(o *doc.Object, key, at string) any {
	id, ok := o.Value(key).(string)
	if !ok {
		return o
	}
	was, _ := o.Int(w.ref.VersionField)
	next, version, err := w.to(FoundRef{Ref: w.ref, Path: at, ID: id, Version: was})
	switch {
	case err != nil:
		w.err = err
	case version != 0 && w.ref.VersionField == "":
		w.err = fault.New(fault.Invalid, "%s: this reference cannot be pinned to a version", at)
	}
	if w.err != nil || (next == id && version == was) {
		return o
	}
	out := o.Clone().Set(key, next)
	if w.ref.VersionField != "" && version != was {
		out.Set(w.ref.VersionField, versionValue(version))
	}
	return out
}

// WithoutUserScope returns a copy of a step document for somebody else: without the fields that name something in one
// person's set-up, and without metadata.attribution. dropped are the paths that held something; step is not changed.
func (k *StepType) WithoutUserScope(step *doc.Object) (clean *doc.Object, dropped []string) {
	clean = step.Clone()
	for _, f := range k.Fields {
		if f.User && hasContent(step.Value(f.Name)) {
			clean.Delete(f.Name)
			dropped = append(dropped, f.Name)
		}
	}
	if meta := step.Obj("metadata"); hasContent(meta.Value("attribution")) {
		m := meta.Clone()
		m.Delete("attribution")
		clean.Set("metadata", m)
		dropped = append(dropped, "metadata.attribution")
	}
	return clean, dropped
}

func hasContent(v any) bool {
	if s, ok := v.(string); ok {
		return s != ""
	}
	return v != nil && !emptyHolder(v)
}
