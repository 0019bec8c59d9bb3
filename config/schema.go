package config

import (
	"slices"

	"agentenv/store/doc"
)

// shape is what a key of the file may hold, for the warnings about keys that nothing reads.
type shape struct {
	kind shapeKind
	keys []field // of a table
}

type field struct {
	name string
	shape
}

type shapeKind int

const (
	scalar shapeKind = iota // anything but a table
	table
	seamShape // an alias, or a table with impl and config
	entries   // a table of entries with free names, each a seam
	free      // a table nobody looks into
)

func of(kind shapeKind, names ...string) []field {
	var out []field
	for _, n := range names {
		out = append(out, field{n, shape{kind: kind}})
	}
	return out
}

// schema lists every table and key that is read.
func schema() shape {
	impls := of(scalar, "impls")
	return shape{kind: table, keys: []field{
		{"stores", shape{kind: table, keys: of(seamShape, "document", "object", "image", "secret")}},
		{"runner", shape{kind: seamShape}},
		{"model", shape{kind: table, keys: append(of(scalar, "base_url", "api_key", "default"), of(free, "roles", "params", "headers")...)}},
		{"conversations", shape{kind: table, keys: of(scalar, "default_human_a2a_url")}},
		{"agents", shape{kind: table, keys: of(scalar, "default_a2a_agent_id")}},
		{"sandbox", shape{kind: table, keys: append(of(scalar, "default", "agent_default"),
			field{"attribution", shape{kind: free}}, field{"providers", shape{kind: entries}})}},
		{"state", shape{kind: table, keys: []field{{"providers", shape{kind: entries}}}}},
		{"envs", shape{kind: table, keys: impls}},
		{"artifacts", shape{kind: table, keys: append(of(free, "type_aliases"), impls...)}},
		{"task_steps", shape{kind: table, keys: impls}},
		{"explorer", shape{kind: table, keys: append(of(scalar, "port", "cors_origins", "allowed_hosts", "static_dir"),
			field{"plugins", shape{kind: table, keys: impls}})}},
		{"plugins", shape{kind: free}},
	}}
}

func (s shape) field(name string) (shape, bool) {
	i := slices.IndexFunc(s.keys, func(f field) bool { return f.name == name })
	if i < 0 {
		return shape{}, false
	}
	return s.keys[i].shape, true
}

func (s shape) names() []string {
	out := make([]string, len(s.keys))
	for i, f := range s.keys {
		out[i] = f.name
	}
	return out
}

// fits reports whether a written value could be meant for the shape.
func (s shape) fits(v any) bool {
	t, isTable := v.(*doc.Object)
	_, isText := v.(string)
	switch s.kind {
	case scalar:
		return !isTable
	case seamShape:
		return isText || isTable && (t.Len() == 0 || has(t, "impl") || has(t, "config"))
	case table:
		return isTable && (t.Len() == 0 || slices.ContainsFunc(s.names(), func(k string) bool { return has(t, k) }))
	}
	return isTable
}

func has(t *doc.Object, key string) bool {
	_, ok := t.Get(key)
	return ok
}
