package config

import (
	"fmt"
	"slices"
	"strings"

	"agentenv/store/doc"
)

// block is a labelled part of a report.
type block struct {
	label string
	lines []string
}

// Text returns the report as `config show` prints it: labels in one column, what belongs to each beside and below.
func (r *Report) Text() string {
	blocks := []block{{"config:", r.header()}, {}}
	for _, s := range r.Sections {
		blocks = append(blocks, block{s.Name + ":", s.text()})
	}
	blocks = append(blocks, block{"plugins:", r.pluginLines()})
	width := 0
	for _, b := range blocks {
		width = max(width, len(b.label)+1)
	}
	var out strings.Builder
	for _, b := range blocks {
		if len(b.lines) == 0 {
			out.WriteByte('\n')
		}
		for i, line := range b.lines {
			start := ""
			if i == 0 {
				start = b.label
			}
			out.WriteString(strings.TrimRight(fmt.Sprintf("%-*s%s", width, start, line), " ") + "\n")
		}
	}
	return out.String()
}

func (r *Report) header() []string {
	out := []string{"(none)"}
	if r.Path != "" {
		out[0] = escape(r.Path)
	}
	switch r.Source {
	case "env":
		out = append(out, "named by $"+fileVar)
	case "walk-up":
		out = append(out, "found by walking up from "+escape(r.SearchRoot))
	case "none":
		out = append(out, "no .agentenv/config.toml in "+escape(r.SearchRoot)+" or any folder above it")
	default:
		out = append(out, "the search failed")
	}
	if r.Err != nil {
		out = append(out, "(error) "+oneLine(r.Err.Error()))
	}
	for _, w := range r.Warnings {
		out = append(out, "(warning) "+w)
	}
	return out
}

func (s SectionReport) text() []string {
	return append(append(body(s.Value, s.Err), "from "+s.Winner.Where), shadowedLines(s.Shadowed)...)
}

// body writes a value, and why it cannot be used.
func body(v any, err error) []string {
	var out []string
	if v != nil || err == nil {
		head, below := render(v)
		out = append([]string{head}, below...)
	}
	if err != nil {
		out = append(out, "(error) "+oneLine(err.Error()))
	}
	return out
}

func shadowedLines(list []LayerReport) []string {
	var out []string
	for _, l := range list {
		switch {
		case l.Kind == kindDefault:
		case l.Err != nil:
			out = append(out, fmt.Sprintf("; %s cannot be read: %s", l.Where, oneLine(l.Err.Error())))
		default:
			out = append(out, fmt.Sprintf("; %s in %s, shadowed", l.Value, l.Where))
		}
	}
	return out
}

func (r *Report) pluginLines() []string {
	var out []string
	for _, p := range r.Plugins {
		out = append(out, p.title())
		for _, line := range body(p.Value, p.Err) {
			if line != "" {
				out = append(out, "  "+line)
			}
		}
		for _, k := range p.Keys {
			out = append(out, "  from ["+label([]string{"plugins", k})+"]")
		}
	}
	switch {
	case r.PluginsErr != nil:
		return []string{"(error) " + oneLine(r.PluginsErr.Error())}
	case len(out) == 0:
		return []string{"(none)"}
	}
	return out
}

func (p PluginReport) title() string {
	if p.Installed {
		return escape(p.Name) + " (this program's own settings)"
	}
	return escape(p.Name) + " (not installed)"
}

// render writes a masked value: what goes on the first line, and the lines below it.
func render(v any) (head string, below []string) {
	switch v := v.(type) {
	case *doc.Object:
		return renderTable(v)
	case []any:
		return "", renderList(v)
	}
	return scalarText(v), nil
}

func renderList(list []any) []string {
	if len(list) == 0 {
		return []string{"  (empty)"}
	}
	var out []string
	for _, x := range list {
		head, below := render(x)
		out = append(out, "  - "+head)
		for _, line := range below {
			out = append(out, "  "+line)
		}
	}
	return out
}

// renderTable writes plain keys on the first line and nested ones below. A backend's class stands first, and the keys of its
// config table stand beside it, in place of keys of the same name that nothing reads.
func renderTable(t *doc.Object) (string, []string) {
	var parts, below []string
	add := func(t *doc.Object, skip ...string) {
		for _, k := range t.Keys() {
			if slices.Contains(skip, k) {
				continue
			}
			switch v := t.Value(k).(type) {
			case *doc.Object, []any:
				below = append(below, renderNested(k, v)...)
			default:
				parts = append(parts, escape(k)+"="+scalarText(v))
			}
		}
	}
	impl := t.Str("impl")
	config, isTable := t.Value("config").(*doc.Object)
	switch {
	case impl == "":
		add(t)
	case !isTable:
		parts = append(parts, className(impl))
		add(t, "impl")
	default:
		parts = append(parts, className(impl))
		add(t, append([]string{"impl", "config"}, config.Keys()...)...)
		add(config)
	}
	if len(parts)+len(below) == 0 {
		return "(empty)", nil
	}
	return strings.Join(parts, "  "), below
}

func renderNested(key string, v any) []string {
	head, below := render(v)
	out := []string{strings.TrimRight("  "+escape(key)+":  "+head, " ")}
	for _, line := range below {
		out = append(out, "  "+line)
	}
	return out
}

// Text returns the explanation as `config explain` prints it.
func (e *Explanation) Text() string {
	var out []string
	add := func(lines ...string) {
		for _, l := range lines {
			if l != "" {
				out = append(out, "  "+l)
			}
		}
	}
	out = append(out, escape(e.Path))
	switch {
	case len(e.Children) > 0:
		add("stands above what resolves on its own:")
		for _, c := range e.Children {
			value := summary(c.Value)
			if c.Err != nil {
				value = "(error) " + oneLine(c.Err.Error())
			}
			add(fmt.Sprintf("  %s  %s  from %s", c.Path, value, c.Winner.Where))
		}
	case e.Winner == nil && e.Err == nil:
		add(unset + ": nothing supplies this path")
	default:
		add(body(e.Value, e.Err)...)
		if e.Winner != nil {
			add("from " + e.Winner.Where)
		}
	}
	add(shadowedLines(e.Shadowed)...)
	if e.FileOnly && e.Winner != nil {
		add("; stands in the file only: nothing reads this path")
	}
	if e.Plugin != nil && !e.Plugin.Installed {
		add("; in the table of " + escape(e.Plugin.Name) + ", which is not installed, so nothing reads it")
	}
	return strings.Join(out, "\n") + "\n"
}

// SourcesText returns a list of sources as `config sources` prints it; an arrow marks those that supply something.
func SourcesText(list []Source) string {
	var out strings.Builder
	for _, s := range list {
		line := fmt.Sprintf("%s %-8s %s", mark(s.Present), s.Kind, escape(s.Where))
		if s.Shadows != "" {
			line += " -> [" + s.Shadows + "]"
		}
		if s.Detail != "" {
			line += "  (" + escape(s.Detail) + ")"
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

func mark(on bool) string {
	if on {
		return "->"
	}
	return "  "
}

// DebugText returns a list of candidates as `config debug` prints it; an arrow marks those that exist.
func DebugText(list []Candidate) string {
	var out strings.Builder
	for _, c := range list {
		exists := "no"
		if c.Exists {
			exists = "yes"
		}
		fmt.Fprintf(&out, "%s %s  (%s, exists: %s)\n", mark(c.Exists), escape(c.Path), c.Why, exists)
	}
	return out.String()
}
