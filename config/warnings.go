package config

import (
	"fmt"
	"slices"
	"strings"

	"agentenv/store/doc"
)

// Warnings lists what in the file is probably not what its writer meant, each problem once: sections that slid under another
// table, settings that lie beside their config table and are not read, misspelled plugin tables, and keys that nothing
// reads. The file is looked at even where an environment variable replaces one of its sections. It is empty for a file that
// cannot be read.
func (c *Config) Warnings() []string {
	w := &warner{schema: schema(), file: c.root}
	w.misplaced()
	w.shadowed()
	w.misspelled()
	w.unread()
	return w.out
}

type warner struct {
	schema shape
	file   *doc.Object
	out    []string
}

func (w *warner) add(format string, args ...any) { w.out = append(w.out, fmt.Sprintf(format, args...)) }

// slid reports whether a key inside a table is the name of a top-level section.
func (w *warner) slid(path []string, key string) bool {
	if key == "plugins" && slices.Equal(path, []string{"explorer"}) {
		return false
	}
	_, ok := w.schema.field(key)
	return ok
}

func (w *warner) addSlid(path []string, key string) {
	w.add("[%s] holds a key %q, which is the name of a section of its own: TOML puts a bare key into the table above it; write [%s] for the section", label(path), key, key)
}

func (w *warner) misplaced() {
	for _, name := range w.file.Keys() {
		if name == "plugins" {
			continue
		}
		t := w.file.Obj(name)
		for _, k := range t.Keys() {
			if w.slid([]string{name}, k) {
				w.addSlid([]string{name}, k)
			}
		}
	}
}

func (w *warner) shadowed() {
	w.visit(func(path []string, t *doc.Object) {
		config := t.Obj("config")
		for _, k := range t.Keys() {
			if k != "impl" && k != "config" && has(config, k) {
				w.add("[%s] sets '%s' beside its config table and inside it; only the one in [%s] counts", label(path), oneLine(k), label(append(slices.Clone(path), "config")))
			}
		}
	})
}

// visit calls fn for the table of every seam and provider entry, in file order.
func (w *warner) visit(fn func(path []string, t *doc.Object)) {
	var walk func(s shape, path []string, v any)
	walk = func(s shape, path []string, v any) {
		t, ok := v.(*doc.Object)
		if !ok {
			return
		}
		switch s.kind {
		case seamShape:
			fn(path, t)
		case entries:
			for _, k := range t.Keys() {
				walk(shape{kind: seamShape}, append(slices.Clone(path), k), t.Value(k))
			}
		case table:
			for _, k := range t.Keys() {
				if f, ok := s.field(k); ok {
					walk(f, append(slices.Clone(path), k), t.Value(k))
				}
			}
		}
	}
	walk(w.schema, nil, w.file)
}

func (w *warner) isMisspelledPlugins(key string, v any) bool {
	_, isTable := v.(*doc.Object)
	return isTable && key != "plugins" && len(key) <= longestKey && ratio(strings.ToLower(key), "plugins") >= pluginsEnough
}

func (w *warner) misspelled() {
	for _, k := range w.file.Keys() {
		if w.isMisspelledPlugins(k, w.file.Value(k)) {
			w.add("[%s] is not read; settings of a plugin belong under [plugins.<package>]. Perhaps [plugins] was meant", label([]string{k}))
		}
	}
}

func (w *warner) unread() {
	for _, k := range w.file.Keys() {
		v := w.file.Value(k)
		s, known := w.schema.field(k)
		switch {
		case known:
			w.inside(s, []string{k}, v)
		case w.isMisspelledPlugins(k, v):
		default:
			w.topLevel(k, v)
		}
	}
}

func (w *warner) topLevel(key string, v any) {
	var fitting []string
	for _, f := range w.schema.keys {
		if f.fits(v) {
			fitting = append(fitting, f.name)
		}
	}
	near := nearest(key, fitting)
	_, isTable := v.(*doc.Object)
	switch {
	case isTable && near != "":
		w.add("[%s] is not read: there is no such table. Perhaps [%s] was meant", label([]string{key}), near)
	case isTable:
		w.add("[%s] is not read: there is no such table; settings of a plugin belong under [plugins.<package>]", label([]string{key}))
	case near != "":
		w.add("the key '%s' at the top of the file is not read. Perhaps '%s' was meant", oneLine(key), near)
	default:
		w.add("the key '%s' at the top of the file is in no table and is not read%s", oneLine(key), w.takers(key))
	}
}

// takers says which tables take a key of that name.
func (w *warner) takers(key string) string {
	var out []string
	for _, f := range w.schema.keys {
		if _, ok := f.field(key); ok {
			out = append(out, "["+f.name+"]")
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "; a key of that name belongs into " + strings.Join(out, " or ")
}

// inside looks for keys that nothing reads in a table of a known shape.
func (w *warner) inside(s shape, path []string, v any) {
	t, ok := v.(*doc.Object)
	if !ok {
		return
	}
	switch s.kind {
	case entries:
		for _, k := range t.Keys() {
			w.inside(shape{kind: seamShape}, append(slices.Clone(path), k), t.Value(k))
		}
	case seamShape:
		w.seam(path, t)
	case table:
		for _, k := range t.Keys() {
			if f, ok := s.field(k); ok {
				w.inside(f, append(slices.Clone(path), k), t.Value(k))
			} else {
				w.key(path, k, s.names(), "it takes "+quoted(s.names()))
			}
		}
	case free:
		if slices.Equal(path, []string{"plugins"}) {
			w.own(t)
		}
	}
}

func (w *warner) seam(path []string, t *doc.Object) {
	config := append(slices.Clone(path), "config")
	for _, k := range t.Keys() {
		if k == "impl" || k == "config" || has(t.Obj("config"), k) {
			continue
		}
		w.key(path, k, []string{"impl", "config"}, "it takes 'impl' and 'config', and settings of the backend belong under ["+label(config)+"]")
	}
}

func (w *warner) key(path []string, key string, takes []string, otherwise string) {
	switch {
	case w.slid(path, key):
		if len(path) > 1 { // the others are in the first group
			w.addSlid(path, key)
		}
	case nearest(key, takes) != "":
		w.add("[%s] has a key '%s', which is not read. Perhaps '%s' was meant", label(path), oneLine(key), nearest(key, takes))
	default:
		w.add("[%s] has a key '%s', which is not read: %s", label(path), oneLine(key), otherwise)
	}
}

// own looks at this program's settings among those of plugins.
func (w *warner) own(plugins *doc.Object) {
	for _, name := range plugins.Keys() {
		if canonical(name) != ownPlugin {
			continue
		}
		path := []string{"plugins", name}
		for _, k := range plugins.Obj(name).Keys() {
			if !slices.Contains(ownKeys(), k) {
				w.key(path, k, ownKeys(), "it takes "+quoted(ownKeys()))
			}
		}
	}
}
