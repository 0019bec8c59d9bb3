package config

import (
	"strings"

	"agentenv/store/doc"
)

// Report is what every section resolves to and why: `config show`. Making it builds no store, touches no network, creates
// nothing and resolves no reference; secrets in it are masked.
type Report struct {
	Path       string // the config file; "" for none
	Source     string // how it was found: "env", "walk-up", "none" or "error"
	SearchRoot string // the folder the search started in
	Err        error  // why there is no file to read: a failed search, or one that cannot be read
	Warnings   []string
	Sections   []SectionReport // none when the search failed
	Plugins    []PluginReport
	PluginsErr error
}

// SectionReport is one section.
type SectionReport struct {
	Name     string
	Winner   LayerReport
	Shadowed []LayerReport // what Winner beats, next highest first
	Impl     any           // the pointer of a seam's backend as the layer writes it; nil for none
	Config   *doc.Object   // a seam's config table
	Value    any           // the whole value; nil when unset or unusable
	Err      error         // why the section cannot be used
}

// LayerReport is one place a section may come from.
type LayerReport struct {
	Kind  string // "env", "file" or "default"
	Where string
	Value string // a summary in one line
	Err   error
}

// PluginReport is one table under [plugins].
type PluginReport struct {
	Name      string   // canonical
	Installed bool     // whether something in this program reads the table
	Keys      []string // the table's names as the file writes them
	Value     any
	Err       error
}

type section struct {
	name string
	room string // where its defaults live
}

// sections lists what follows the seams in a report.
func sections() []section {
	return []section{{"model", "config"}, {"conversations", "config"}, {"agents", "config"}, {"sandbox", "sandbox"}, {"state", "env"},
		{"envs", "env"}, {"artifacts", "artifact"}, {"task_steps", "task"}, {"explorer", "explorer"}}
}

// Show makes the report of everything. It never fails: what is wrong is in the report.
func (c *Config) Show() *Report {
	r := &Report{Path: c.found.path, Source: c.found.source, SearchRoot: c.dir, Err: c.broken, Warnings: c.Warnings()}
	if c.found.err == nil {
		for _, s := range seams() {
			r.Sections = append(r.Sections, c.reportSeam(s))
		}
		for _, s := range sections() {
			r.Sections = append(r.Sections, c.reportSection(s))
		}
	}
	r.Plugins, r.PluginsErr = c.reportPlugins()
	return r
}

func (c *Config) reportSeam(s seam) SectionReport {
	layers := c.layers(s)
	out := SectionReport{Name: s.name, Config: &doc.Object{}}
	for i, l := range layers {
		r := LayerReport{Kind: l.kind, Where: l.where, Err: l.err, Value: c.seamSummary(s, l)}
		if i > 0 {
			out.Shadowed = append(out.Shadowed, r)
			continue
		}
		out.Winner = r
	}
	l := layers[0]
	if l.err != nil {
		out.Err = l.err
		return out
	}
	pointer, config, err := c.chosen(s, l)
	if t, ok := l.value.(*doc.Object); ok {
		t = maskSeam(s, t).(*doc.Object)
		out.Impl, out.Value, out.Err = t.Value("impl"), t, err
		if x := t.Obj("config"); x != nil {
			out.Config = x
		}
		return out
	}
	if err != nil {
		out.Err = err
		return out
	}
	out.Impl, out.Config = pointer, config
	out.Value = doc.Of("impl", pointer, "config", config)
	return out
}

func (c *Config) seamSummary(s seam, l layer) string {
	if l.err != nil {
		return unreadable(l.err)
	}
	return summary(maskSeam(s, l.value))
}

func unreadable(err error) string { return "(unreadable: " + oneLine(err.Error()) + ")" }

func (c *Config) reportSection(s section) SectionReport {
	out := SectionReport{Name: s.name, Config: &doc.Object{}, Winner: LayerReport{Kind: kindDefault, Where: "default in " + s.room, Value: unset}}
	if c.broken != nil {
		out.Winner = LayerReport{Kind: kindFile, Where: "[" + s.name + "]", Value: unreadable(c.broken)}
		out.Err = c.broken
		return out
	}
	v, ok := c.root.Get(s.name)
	if !ok {
		return out
	}
	v = mask(v, false)
	out.Winner = LayerReport{Kind: kindFile, Where: "[" + s.name + "]", Value: summary(v)}
	if _, isTable := v.(*doc.Object); isTable {
		out.Value = v
	}
	out.Err = c.check(s.name)
	return out
}

// check runs the reader of a section with its references left as they are.
func (c *Config) check(name string) error {
	d := *c
	d.literal = true
	var err error
	switch name {
	case "model":
		_, err = d.parseModel()
	case "conversations":
		if err = d.is("conversations"); err == nil && has(d.root.Obj(name), "default_human_a2a_url") {
			d.lookup = func(string) (string, bool) { return "", false }
			_, err = d.Conversations()
		}
	case "agents":
		_, err = d.Agents()
	case "sandbox":
		_, err = d.Sandbox()
	case "state":
		_, err = d.StateProviders()
	case "artifacts":
		_, err = d.Artifacts()
	case "explorer":
		if _, err = d.Explorer(); err == nil {
			_, err = d.Impls("explorer", "plugins")
		}
	default:
		_, err = d.Impls(name)
	}
	return err
}

func (c *Config) is(path ...string) error { _, err := c.table(path...); return err }

func (c *Config) reportPlugins() ([]PluginReport, error) {
	t, err := c.table("plugins")
	if err != nil {
		return nil, err
	}
	var out []PluginReport
	at := map[string]int{}
	for _, k := range t.Keys() {
		name := canonical(k)
		i, ok := at[name]
		if !ok {
			i = len(out)
			at[name] = i
			out = append(out, PluginReport{Name: name, Installed: name == ownPlugin})
		}
		out[i].Keys = append(out[i].Keys, k)
	}
	for i := range out {
		p := &out[i]
		own, err := c.table("plugins", p.Keys[0])
		switch {
		case len(p.Keys) > 1:
			p.Err = c.twice(p.Keys)
		case err != nil:
			p.Err = err
		default:
			p.Value = mask(own, false)
			if p.Installed {
				d := *c
				d.literal = true
				_, p.Err = d.Limits()
			}
		}
	}
	return out, nil
}

const unset = "(unset)"

// summary writes a masked value in one line: the class of a backend, else the plain keys, else the names of the others.
func summary(v any) string {
	t, ok := v.(*doc.Object)
	if !ok {
		return scalarText(v)
	}
	if impl := t.Str("impl"); impl != "" {
		return className(impl)
	}
	var plainKeys, nested []string
	for _, k := range t.Keys() {
		switch t.Value(k).(type) {
		case *doc.Object, []any:
			nested = append(nested, k)
		default:
			plainKeys = append(plainKeys, escape(k)+"="+scalarText(t.Value(k)))
		}
	}
	switch {
	case len(plainKeys) > 0:
		return strings.Join(plainKeys, "  ")
	case len(nested) > 0:
		return escape(strings.Join(nested, ", "))
	}
	return unset
}

func className(pointer string) string {
	if _, class, ok := strings.Cut(pointer, ":"); ok {
		return escape(class)
	}
	return escape(pointer)
}

// scalarText writes one value on one line.
func scalarText(v any) string {
	switch v := v.(type) {
	case nil:
		return unset
	case string:
		return escape(v)
	case moment:
		return string(v)
	case doc.Number:
		return string(v)
	case bool:
		if v {
			return "true"
		}
		return "false"
	}
	text, err := doc.Marshal(plain(v))
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return string(text)
}

// escape keeps a text on its line.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s)
	return oneLine(s)
}
