package config

import (
	"slices"
	"strconv"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Explanation says where the value of one path comes from: `config explain`. It is made under the terms of Report.
type Explanation struct {
	Path     string
	Section  string // "" when the path belongs to none, or has layers of its own
	Value    any
	Winner   *LayerReport // nil when nothing supplies the path
	Shadowed []LayerReport
	Err      error
	FileOnly bool          // nothing in this program reads the path
	Plugin   *PluginReport // the plugin whose table the path is in
	Children []Child       // what lies under the path when it is above several sections
}

// Child is one section or plugin table below an explained path.
type Child struct {
	Path, Section string
	Winner        LayerReport
	Value         any
	Err           error
	Plugin        *PluginReport
}

// Explain says where a path's value comes from. The path is the name of a section or a TOML path, whose segments may be
// quoted. Below a section the winning layer is read, not the file. It never fails: what is wrong with the path is in the result.
func (c *Config) Explain(path string) *Explanation {
	out := &Explanation{Path: path}
	keys, err := splitPath(path)
	if err != nil {
		out.Err = err
		return out
	}
	if i := slices.IndexFunc(seams(), func(s seam) bool { return s.name == keys[0] }); i >= 0 && !has(c.root, keys[0]) {
		keys = append(slices.Clone(seams()[i].path), keys[1:]...)
	}
	switch {
	case c.explainSettled(out, keys):
	case c.explainSection(out, keys):
	case len(keys) == 1 && keys[0] == "stores":
		for _, s := range seams() {
			if s.path[0] == "stores" {
				r := c.reportSeam(s)
				out.Children = append(out.Children, Child{Path: label(s.path), Section: s.name, Winner: r.Winner, Value: r.Value, Err: r.Err})
			}
		}
	case keys[0] == "plugins":
		c.explainPlugins(out, keys)
	default:
		c.explainFile(out, keys)
	}
	return out
}

// splitPath reads a dotted TOML key.
func splitPath(path string) ([]string, error) {
	if path == "" {
		return nil, fault.New(fault.Invalid, "the path is empty; give the name of a section or a path such as stores.document")
	}
	bad := fault.New(fault.Invalid, "%q is no path; join keys by dots and quote those with other characters, as in plugins.\"a.b\".key", oneLine(path))
	var out []string
	for rest := path; ; {
		var key string
		if rest != "" && (rest[0] == '"' || rest[0] == '\'') {
			end := quotedEnd(rest)
			if end < 0 {
				return nil, bad
			}
			key = rest[1:end]
			if rest[0] == '"' {
				key = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(key)
			}
			rest = rest[end+1:]
		} else {
			end := strings.IndexByte(rest, '.')
			if end < 0 {
				end = len(rest)
			}
			if key = rest[:end]; key == "" {
				return nil, bad
			}
			rest = rest[end:]
		}
		out = append(out, key)
		if rest == "" {
			return out, nil
		}
		if rest[0] != '.' {
			return nil, bad
		}
		rest = rest[1:]
	}
}

func quotedEnd(s string) int {
	for i := 1; i < len(s); i++ {
		if s[i] == '\\' && s[0] == '"' {
			i++
		} else if s[i] == s[0] {
			return i
		}
	}
	return -1
}

// settled are single keys with layers of their own.
type settled struct {
	path     []string
	env      string
	fallback string
}

func settledKeys() []settled {
	return []settled{
		{[]string{"model", "api_key"}, "LITELLM_API_KEY", ""},
		{[]string{"model", "base_url"}, "LITELLM_BASE_URL", ""},
		{[]string{"conversations", "default_human_a2a_url"}, humanVar, ""},
		{[]string{"agents", "default_a2a_agent_id"}, "", defaultAgent},
	}
}

func (c *Config) explainSettled(out *Explanation, keys []string) bool {
	i := slices.IndexFunc(settledKeys(), func(s settled) bool { return slices.Equal(s.path, keys) })
	if i < 0 {
		return false
	}
	s := settledKeys()[i]
	type place struct {
		LayerReport
		value any
	}
	var layers []place
	secret := secretKey(s.path[1])
	add := func(kind, where string, v any, err error) {
		v = mask(v, secret)
		r := LayerReport{Kind: kind, Where: where, Value: summary(v), Err: err}
		if err != nil {
			r.Value = unreadable(err)
		}
		layers = append(layers, place{r, v})
	}
	if s.env != "" && c.env(s.env) != "" {
		add(kindEnv, "$"+s.env, c.env(s.env), nil)
	}
	t, err := c.table(s.path[0])
	if v, ok := t.Get(s.path[1]); ok || err != nil {
		add(kindFile, "["+label(s.path)+"]", v, err)
	}
	if s.fallback != "" {
		add(kindDefault, builtinText, s.fallback, nil)
	}
	for i, l := range layers {
		if i > 0 {
			out.Shadowed = append(out.Shadowed, l.LayerReport)
			continue
		}
		out.Winner, out.Value, out.Err = &l.LayerReport, l.value, l.Err
		if l.Err != nil {
			out.Value = nil
		}
	}
	return true
}

func (c *Config) explainSection(out *Explanation, keys []string) bool {
	var r SectionReport
	rest := keys[1:]
	if i := slices.IndexFunc(seams(), func(s seam) bool { return len(keys) >= len(s.path) && slices.Equal(s.path, keys[:len(s.path)]) }); i >= 0 {
		r = c.reportSeam(seams()[i])
		rest = keys[len(seams()[i].path):]
	} else if i := slices.IndexFunc(sections(), func(s section) bool { return s.name == keys[0] }); i >= 0 {
		r = c.reportSection(sections()[i])
	} else {
		return false
	}
	out.Section, out.Winner, out.Shadowed, out.Err = r.Name, &r.Winner, r.Shadowed, r.Err
	out.Value = at(r.Value, rest)
	if slices.ContainsFunc(rest, secretKey) {
		for i, l := range out.Shadowed {
			out.Shadowed[i].Value = maskText(l.Value, true)
		}
	}
	return true
}

// at returns what lies at a path inside a value; elements of lists are named by their number.
func at(v any, keys []string) any {
	for _, k := range keys {
		switch x := v.(type) {
		case *doc.Object:
			v = x.Value(k)
		case []any:
			i, err := strconv.Atoi(k)
			if err != nil || i < 0 || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func (c *Config) explainPlugins(out *Explanation, keys []string) {
	tables, err := c.reportPlugins()
	out.Err = err
	where := func(p PluginReport) LayerReport {
		names := make([]string, len(p.Keys))
		for i, k := range p.Keys {
			names[i] = "[" + label([]string{"plugins", k}) + "]"
		}
		r := LayerReport{Kind: kindFile, Where: strings.Join(names, ", "), Value: summary(p.Value), Err: p.Err}
		if p.Value == nil {
			r.Value = unreadable(p.Err)
		}
		return r
	}
	if len(keys) == 1 {
		if len(tables) == 0 {
			out.Section = "plugins"
		}
		for _, p := range tables {
			out.Children = append(out.Children, Child{Path: label([]string{"plugins", p.Name}), Section: "plugins", Winner: where(p), Value: p.Value, Err: p.Err, Plugin: &p})
		}
		return
	}
	out.Section = "plugins"
	name := canonical(keys[1])
	out.Plugin = &PluginReport{Name: name, Installed: name == ownPlugin}
	for _, p := range tables {
		if p.Name == name {
			w := where(p)
			out.Plugin, out.Winner, out.Err, out.Value = &p, &w, p.Err, at(p.Value, keys[2:])
		}
	}
}

func (c *Config) explainFile(out *Explanation, keys []string) {
	out.FileOnly, out.Err = true, c.broken
	v := at(mask(c.root, false), keys)
	if v == nil {
		return
	}
	out.Value = v
	out.Winner = &LayerReport{Kind: kindFile, Where: "[" + label(keys) + "]", Value: summary(v)}
}
