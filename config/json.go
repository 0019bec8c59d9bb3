package config

import "agentenv/store/doc"

// JSON returns the report as `config show --json` prints it.
func (r *Report) JSON() *doc.Object {
	sections, tables := []any{}, []any{}
	for _, s := range r.Sections {
		sections = append(sections, doc.Of("name", s.Name, "winner", s.Winner.json(), "shadowed", layersJSON(s.Shadowed), "impl", plain(s.Impl),
			"config", plain(s.Config), "value", plain(s.Value), "error", errText(s.Err)))
	}
	for _, p := range r.Plugins {
		o := p.json().Set("keys", doc.MustFrom(p.Keys))
		tables = append(tables, o.Set("value", plain(p.Value)).Set("error", errText(p.Err)))
	}
	warnings := []any{}
	for _, w := range r.Warnings {
		warnings = append(warnings, w)
	}
	return doc.Of("config_path", orNull(r.Path), "config_source", r.Source, "search_root", r.SearchRoot, "error", errText(r.Err), "warnings", warnings,
		"sections", sections, "plugins", doc.Of("error", errText(r.PluginsErr), "tables", tables))
}

func (l LayerReport) json() *doc.Object {
	return doc.Of("kind", l.Kind, "where", l.Where, "value", l.Value)
}

func layersJSON(list []LayerReport) []any {
	out := []any{}
	for _, l := range list {
		out = append(out, l.json().Set("error", errText(l.Err)))
	}
	return out
}

// json identifies a plugin. Tables are read by this program itself or by nothing: it loads no plugins.
func (p PluginReport) json() *doc.Object {
	return doc.Of("name", p.Name, "installed", p.Installed, "version", nil, "plugin", false)
}

func errText(err error) any {
	if err == nil {
		return nil
	}
	return oneLine(err.Error())
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// JSON returns the explanation as `config explain --json` prints it.
func (e *Explanation) JSON() *doc.Object {
	var winner, plugin any
	if e.Winner != nil {
		winner = e.Winner.json()
	}
	if e.Plugin != nil {
		plugin = e.Plugin.json()
	}
	children := []any{}
	for _, c := range e.Children {
		var of any
		if c.Plugin != nil {
			of = c.Plugin.json()
		}
		children = append(children, doc.Of("path", c.Path, "section", c.Section, "winner", c.Winner.Where, "value", plain(c.Value), "error", errText(c.Err), "plugin", of))
	}
	return doc.Of("path", e.Path, "section", orNull(e.Section), "value", plain(e.Value), "winner", winner, "shadowed", layersJSON(e.Shadowed),
		"error", errText(e.Err), "file_only", e.FileOnly, "plugin", plugin, "children", children)
}

// SourcesJSON returns a list of sources as `config sources --json` prints it.
func SourcesJSON(list []Source) *doc.Object {
	out := []any{}
	for _, s := range list {
		out = append(out, doc.Of("kind", s.Kind, "where", s.Where, "present", s.Present, "detail", orNull(s.Detail), "shadows", orNull(s.Shadows)))
	}
	return doc.Of("sources", out)
}

// DebugJSON returns a list of candidates as `config debug --json` prints it.
func DebugJSON(list []Candidate) *doc.Object {
	out := []any{}
	for _, c := range list {
		out = append(out, doc.Of("path", c.Path, "why", c.Why, "exists", c.Exists))
	}
	return doc.Of("search_path", out)
}
