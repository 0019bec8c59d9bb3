package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"agentenv/agent/objects"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// skillSource is where one skill of a step comes from: its text, the objects below a URL, or an artifact.
type skillSource struct {
	name, description string
	text              string // of the SKILL.md
	url               string
	renames           bool // the name is what the agent is to know it by, whatever the SKILL.md says
	ref               artifact.Ref
}

// inlineFields are the fields that only a skill written in the step has.
func inlineFields() []string {
	return []string{"body", "license", "compatibility", "metadata", "allowed_tools"}
}

// parseSource reads one entry of skills, and returns it with what is stored of it.
func parseSource(o *doc.Object) (skillSource, *doc.Object, error) {
	bad := func(format string, args ...any) (skillSource, *doc.Object, error) {
		return skillSource{}, nil, fault.New(fault.Invalid, format, args...)
	}
	known := append([]string{"name", "description", "s3_url", "object_url", "skill_artifact_id", "skill_artifact_version"}, inlineFields()...)
	for _, k := range o.Keys() {
		_, isText := o.Value(k).(string)
		switch {
		case !slices.Contains(known, k):
			return bad("there is no field %q; known are %s", k, strings.Join(known, ", "))
		case !isText && o.Value(k) != nil && k != "metadata" && k != "skill_artifact_version":
			return bad("%s must be a text, not %s", k, task.Brief(o.Value(k)))
		}
	}
	url := o.Str("s3_url")
	if url == "" {
		url = o.Str("object_url")
	}
	s := skillSource{name: o.Str("name"), description: o.Str("description"), url: url, ref: artifact.Ref{ID: o.Str("skill_artifact_id")}}
	var given []string
	for _, k := range inlineFields() {
		if o.Value(k) != nil {
			given = append(given, k)
		}
	}
	elsewhere := url != "" || s.ref.ID != ""
	switch {
	case url != "" && s.ref.ID != "":
		return bad("object_url and skill_artifact_id exclude each other")
	case elsewhere && len(given) > 0:
		return bad("%s belongs to a skill that is written in the step, not to one from an object URL or an artifact", strings.Join(given, ", "))
	case s.ref.ID == "" && (s.name == "" || s.description == ""):
		return bad("it needs name and description, or skill_artifact_id")
	}
	var err error
	if s.ref.Version, err = versionOf("skill_artifact_version", o.Value("skill_artifact_version")); err != nil {
		return skillSource{}, nil, err
	}
	if !elsewhere {
		if s.text, err = skillText(o); err != nil {
			return skillSource{}, nil, err
		}
	}
	return s, storedSource(o, url), nil
}

// storedSource is what a document keeps of a skill: what it gives, the URL under both its names.
func storedSource(o *doc.Object, url string) *doc.Object {
	out := doc.Of()
	for _, k := range []string{"name", "description", "body", "license", "compatibility", "metadata", "allowed_tools", "s3_url", "object_url", "skill_artifact_id", "skill_artifact_version"} {
		v := o.Value(k)
		if strings.HasSuffix(k, "_url") {
			v = textOrNull(url)
		}
		if v != nil {
			out.Set(k, v)
		}
	}
	return out
}

// skillText writes the SKILL.md of a skill that is written in the step.
func skillText(o *doc.Object) (string, error) {
	lines := []string{"---"}
	for _, k := range [][2]string{{"name", "name"}, {"description", "description"}, {"license", "license"}, {"compatibility", "compatibility"}} {
		if s := o.Str(k[0]); s != "" {
			lines = append(lines, k[1]+": "+scalar(s))
		}
	}
	if v := o.Value("metadata"); v != nil {
		m, isObject := v.(*doc.Object)
		if !isObject {
			return "", fault.New(fault.Invalid, "metadata must map texts to texts, not be %s", task.Brief(v))
		}
		lines = append(lines, "metadata:")
		if m.Len() == 0 {
			lines[len(lines)-1] += " {}"
		}
		for _, k := range m.Keys() {
			value, isText := m.Value(k).(string)
			if !isText {
				return "", fault.New(fault.Invalid, "metadata.%s must be a text, not %s", k, task.Brief(m.Value(k)))
			}
			lines = append(lines, "  "+scalar(k)+": "+quote(value))
		}
	}
	if s := o.Str("allowed_tools"); s != "" {
		lines = append(lines, "allowed-tools: "+scalar(s))
	}
	return strings.Join(append(lines, "---", "", o.Str("body")), "\n"), nil
}

// scalar writes a text as YAML: as it stands where that reads as the same text.
func scalar(s string) string {
	var back map[string]any
	if err := yaml.Unmarshal([]byte("k: "+s), &back); err == nil && len(back) == 1 && back["k"] == s {
		return s
	}
	return quote(s)
}

// quote writes a text as a JSON string, which YAML takes.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // a string has a JSON form
		return s
	}
	return string(b)
}

// fetch reads a skill and checks it, without a look at the agent it is for.
func (d Deps) fetch(ctx context.Context, s skillSource) (objects.Skill, error) {
	out, expected, at := objects.Skill{Text: s.text}, s.name, s.url
	if s.renames {
		expected = ""
	}
	name, description := s.name, s.description
	if s.ref.ID != "" {
		k, err := artifact.GetAs[*artifact.Skill](ctx, d.Artifacts, s.ref)
		if err != nil {
			return out, err
		}
		expected, at, name, description = s.ref.ID, k.URL, k.Name, k.Description
	}
	if at != "" {
		var err error
		if out, err = d.Mover.ReadSkill(ctx, at); err != nil {
			return out, err
		}
	}
	head, _, err := artifact.ParseSkill(expected, []byte(out.Text))
	if err != nil {
		return out, err
	}
	out.Name, out.Description = cmp.Or(name, head.Name), cmp.Or(description, head.Description)
	return out, nil
}
