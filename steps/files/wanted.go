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

// resolve returns what the step is to collect; listed says that a list was given, even one with nothing left in it. Entries that
// may not be collected go into g.refused.
func (a *collect) resolve(r *task.Run, g *gathered) (items []item, listed bool, err error) {
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
		items, err = a.fromManifest(r, g)
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
			g.refused = append(g.refused, err)
			continue
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

// entry reads one entry of a list. ".." parts are taken out of the path by its text alone; a relative entry that leads out of
// base_path, and any entry that ends in "..", is an Invalid error.
func (a *collect) entry(e string) (item, error) {
	bad := func(why string) (item, error) { return item{}, fault.New(fault.Invalid, "the entry %q %s", e, why) }
	if strings.ContainsRune(e, 0) {
		return bad("holds a NUL")
	}
	if path.Base(e) == ".." {
		return bad("ends in \"..\"; write the path of the folder itself")
	}
	climbs := slices.Contains(strings.Split(e, "/"), "..")
	if path.IsAbs(e) {
		source := folder(e)
		if climbs {
			source = path.Clean(e)
			return item{key: e, source: source, object: source[1:]}, nil
		}
		return item{key: e, source: source, object: strings.TrimLeft(e, "/")}, nil
	}
	source := path.Join(a.base, e)
	if !climbs {
		return item{key: e, source: source, object: e}, nil
	}
	object, below := strings.CutPrefix(source, strings.TrimRight(path.Clean(a.base), "/")+"/")
	if !below {
		return bad("leads out of base_path " + a.base + " by \"..\"; write it as an absolute path")
	}
	return item{key: e, source: source, object: object}, nil
}

// fromManifest takes the paths from the latest structured output of a step.
func (a *collect) fromManifest(r *task.Run, g *gathered) ([]item, error) {
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
			g.refused = append(g.refused, fault.At(err, "manifest of step %q", a.manifest))
			continue
		}
		src = it.source
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
	if len(items)+len(g.refused) == 0 {
		return nil, fault.New(fault.Invalid, "the manifest of step %q names no file to collect (structured_output.artifacts: a map of names to absolute paths)", a.manifest).WithClass("RuntimeError")
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
