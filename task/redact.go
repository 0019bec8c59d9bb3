package task

import (
	"slices"
	"strings"

	"agentenv/store/doc"
)

var secretKeys = []string{"litellm_api_key", "judge_litellm_api_key", "usersim_api_key", "remote_tokens", "cf_access_client_secret", "_heartbeat_fn"}

// hides reports whether a value under a key stays in memory. A reference to a secret may be stored, unless it brings a
// default along, which could be the secret itself.
func hides(key string, v any) bool {
	if !slices.Contains(secretKeys, key) {
		return false
	}
	s, _ := v.(string)
	reference := (strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "secret:")) && !strings.Contains(s, "?")
	return !reference
}

// secrets mirrors the parts of a value that hold hidden values: leaf has them by key, sub the maps and lists below, and
// items the elements of a list by the canonical text of what remains of them.
type secrets struct {
	leaf  map[string]any
	sub   map[string]*secrets
	items map[string]*secrets
}

func (s *secrets) empty() bool {
	return s == nil || (len(s.leaf) == 0 && len(s.sub) == 0 && len(s.items) == 0)
}

// Redact returns v without the values that may never be stored or leave the process. What holds none is returned as it is.
func Redact(v any) any {
	clean, _ := split(v)
	return clean
}

// split parts a value from its secrets; clean is v itself when there are none.
func split(v any) (clean any, sec *secrets) {
	switch v := v.(type) {
	case *doc.Object:
		return splitMap(v)
	case []any:
		return splitList(v)
	}
	return v, nil
}

func splitMap(o *doc.Object) (*doc.Object, *secrets) {
	clean, sec := o, &secrets{}
	own := func() {
		if clean == o {
			clean = o.Clone()
		}
	}
	for _, k := range o.Keys() {
		v := o.Value(k)
		if hides(k, v) {
			own()
			clean.Delete(k)
			sec.setLeaf(k, v)
			continue
		}
		if c, s := split(v); !s.empty() {
			own()
			clean.Set(k, c)
			sec.setSub(k, s)
		}
	}
	if sec.empty() {
		return o, nil
	}
	return clean, sec
}

func splitList(list []any) ([]any, *secrets) {
	clean, sec := list, &secrets{}
	for i, v := range list {
		c, s := split(v)
		if s.empty() {
			continue
		}
		if len(sec.items) == 0 {
			clean = slices.Clone(list)
		}
		clean[i] = c
		sec.setItem(doc.Canonical(c), s)
	}
	if sec.empty() {
		return list, nil
	}
	return clean, sec
}

func (s *secrets) setLeaf(k string, v any) {
	if s.leaf == nil {
		s.leaf = map[string]any{}
	}
	s.leaf[k] = v
}

func (s *secrets) setSub(k string, sub *secrets) {
	if s.sub == nil {
		s.sub = map[string]*secrets{}
	}
	s.sub[k] = sub
}

func (s *secrets) setItem(k string, item *secrets) {
	if s.items == nil {
		s.items = map[string]*secrets{}
	}
	s.items[k] = item
}

// at returns the node at a path, made when it is not there.
func (s *secrets) at(path []string) *secrets {
	for _, k := range path {
		next := s.sub[k]
		if next == nil {
			next = &secrets{}
			s.setSub(k, next)
		}
		s = next
	}
	return s
}

// drop forgets what is hidden at and below a path.
func (s *secrets) drop(path []string) {
	for _, k := range path[:len(path)-1] {
		if s = s.sub[k]; s == nil {
			return
		}
	}
	delete(s.sub, path[len(path)-1])
	delete(s.leaf, path[len(path)-1])
}

// lay returns v with the hidden values put back: maps that held nothing else are made again, and a value that is no longer
// a map stays what it is.
func (s *secrets) lay(v any) any {
	if s.empty() {
		return v
	}
	switch v := v.(type) {
	case nil:
		if s.hasLeaf() {
			return s.layMap(&doc.Object{})
		}
	case *doc.Object:
		return s.layMap(v)
	case []any:
		return s.layList(v)
	}
	return v
}

func (s *secrets) hasLeaf() bool {
	if s == nil || len(s.leaf) > 0 {
		return s != nil
	}
	for _, sub := range s.sub {
		if sub.hasLeaf() {
			return true
		}
	}
	return false
}

func (s *secrets) layMap(o *doc.Object) *doc.Object {
	o = o.Clone()
	for _, k := range sortedKeys(s.leaf) {
		o.Set(k, s.leaf[k])
	}
	for _, k := range sortedKeys(s.sub) {
		old, there := o.Get(k)
		if !there && !s.sub[k].hasLeaf() {
			continue
		}
		o.Set(k, s.sub[k].lay(old))
	}
	return o
}

func (s *secrets) layList(list []any) []any {
	if len(s.items) == 0 {
		return list
	}
	out := slices.Clone(list)
	for i, v := range out {
		if o, ok := v.(*doc.Object); ok {
			out[i] = s.items[doc.Canonical(o)].lay(o)
		} else if l, ok := v.([]any); ok {
			out[i] = s.items[doc.Canonical(l)].lay(l)
		}
	}
	return out
}
