package files

import (
	"context"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox/place"
	"agentenv/store/doc"
	"agentenv/task"
)

// item is one thing to collect. Everything below a folder takes its key and object name as a prefix.
type item struct {
	key, source, object string
}

// below returns what a file under the item is called.
func (it item) below(name string) (key, object string) {
	if name == "" {
		return it.key, it.object
	}
	if !utf8.ValidString(name) {
		name = artifact.SafeName(name)
	}
	join := func(a string) string {
		if a == "" || strings.HasSuffix(a, "/") {
			return a + name
		}
		return a + "/" + name
	}
	return join(it.key), join(it.object)
}

// resolve returns what the step is to collect; listed says that a list was given, even one with nothing left in it.
func (a *collect) resolve(r *task.Run) (items []item, listed bool, err error) {
	var entries []string
	over, there := r.Param("artifact_paths")
	seed, _ := r.Metadata("seed", a.seedKey).(string)
	switch {
	case there && over != nil:
		if s, ok := over.(string); ok {
			entries = []string{s}
		} else if list, ok := over.([]any); ok {
			entries = texts(list)
		} else {
			return nil, false, fault.New(fault.Invalid, "step_params artifact_paths must be a list or a string, not a %s", doc.TypeName(over))
		}
	case a.manifest != "":
		items, err = a.fromManifest(r)
		return items, true, err
	case seed != "":
		for _, e := range strings.Split(seed, ",") {
			if e = strings.TrimSpace(e); e != "" {
				entries = append(entries, e)
			}
		}
	default:
		entries = a.paths
	}
	for _, e := range entries {
		if isURL(e) || e == "" {
			continue
		}
		it, err := a.entry(e)
		if err != nil {
			return nil, true, err
		}
		items = append(items, it)
	}
	return items, len(entries) > 0, nil
}

func isURL(e string) bool {
	scheme, _, ok := strings.Cut(e, "://")
	if !ok || scheme == "" || !isLetter(scheme[0]) {
		return false
	}
	return strings.IndexFunc(scheme, func(c rune) bool {
		return !(c < 128 && isLetter(byte(c)) || c >= '0' && c <= '9' || strings.ContainsRune("+.-", c))
	}) < 0
}

func isLetter(c byte) bool { return c|32 >= 'a' && c|32 <= 'z' }

// entry reads one entry of a list. A ".." part is refused: what it means depends on links inside the sandbox, and it would
// name objects outside the collection.
func (a *collect) entry(e string) (item, error) {
	if slices.Contains(strings.Split(e, "/"), "..") {
		return item{}, fault.New(fault.Invalid, "the entry %q holds \"..\"; write the path without it", e)
	}
	if strings.ContainsRune(e, 0) {
		return item{}, fault.New(fault.Invalid, "the entry %q holds a NUL", e)
	}
	if path.IsAbs(e) {
		return item{key: e, source: folder(e), object: strings.TrimLeft(e, "/")}, nil
	}
	return item{key: e, source: folder(path.Join(a.base, e)), object: e}, nil
}

// fromManifest takes the paths from the latest structured output of a step.
func (a *collect) fromManifest(r *task.Run) ([]item, error) {
	var out *doc.Object
	for _, p := range r.PromptResponses() {
		if p.Str("step_id") == a.manifest {
			out = p.Obj("structured_output")
		}
	}
	if out == nil {
		out, _ = r.Metadata("structured_outputs", a.manifest).(*doc.Object)
	}
	manifest := out.Obj("artifacts")
	var items []item
	taken := map[string]bool{}
	for _, name := range manifest.Keys() {
		src, ok := manifest.Value(name).(string)
		if !ok || !path.IsAbs(src) || strings.Contains(src, "*") || slices.Contains(a.exclude, path.Base(src)) {
			continue
		}
		it, err := a.entry(src)
		if err != nil {
			return nil, fault.At(err, "manifest of step %q", a.manifest)
		}
		it.key = name
		if rel, ok := strings.CutPrefix(src, strings.TrimRight(a.base, "/")+"/"); ok {
			it.object = rel
		} else if it.object = path.Base(src); taken[it.object] {
			// Two files of one name outside base_path keep their folders in the object name.
			it.object = strings.TrimLeft(src, "/")
		}
		taken[it.object] = true
		items = append(items, it)
	}
	if len(items) == 0 {
		return nil, fault.New(fault.Invalid, "the manifest of step %q names no file to collect (structured_output.artifacts: a map of names to absolute paths)", a.manifest)
	}
	return items, nil
}

// expand replaces patterns by what they match: an entry is a pattern when it reads like one and nothing has that very name.
func (a *collect) expand(ctx context.Context, r *task.Run, p place.Place, items []item, g *gathered) ([]item, error) {
	var out []item
	for _, it := range items {
		if !strings.ContainsAny(it.source, "*?[{") {
			out = append(out, it)
			continue
		}
		if _, err := p.Stat(ctx, it.source, true); err == nil || !fault.Is(err, fault.NotFound) {
			out = append(out, it)
			continue
		}
		found, err := glob(ctx, p, it)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			r.Log.Warn("File not found: nothing matches " + it.source)
			g.absent = append(g.absent, it.source)
		}
		out = append(out, found...)
	}
	return out, nil
}
