package agents

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"agentenv/agent/objects"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
	"agentenv/task"
)

// maxSkillFile is how large a SKILL.md may be, in bytes.
const maxSkillFile = 4 << 20

// skillSource is where one skill of a step comes from: its text, the objects below a URL, or an artifact.
type skillSource struct {
	name, description string
	text              string // of the SKILL.md
	url               string
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

// lesson is one skill as the agent is given it: its text, or objects.
type lesson struct {
	objects.Skill
	text string // "" = it goes as objects
}

// read returns what the agent is given of one skill: the text where the SKILL.md is all there is and the agent takes it, else objects.
func (d Deps) read(ctx context.Context, s skillSource, offered *card.Extension) (*lesson, error) {
	l, expected, at := &lesson{Skill: objects.Skill{Name: s.name, Description: s.description}, text: s.text}, s.name, s.url
	if s.ref.ID != "" {
		k, err := artifact.GetAs[*artifact.Skill](ctx, d.Artifacts, s.ref)
		if err != nil {
			return nil, err
		}
		expected, at, l.Name, l.Description = s.ref.ID, k.URL, k.Name, k.Description
	}
	if at != "" {
		var err error
		if l.Files, l.text, err = d.skillAt(ctx, at); err != nil {
			return nil, fault.At(err, "%s", at)
		}
	}
	if _, _, err := artifact.ParseSkill(expected, []byte(l.text)); err != nil {
		return nil, err
	}
	switch {
	case takesText(offered) && len(l.Files) < 2:
	case len(l.Files) == 0:
		return nil, fault.New(fault.Unsupported, "the card of the agent takes no text of a skill; give the skill as an artifact")
	case !offered.Takes("add", "name", "description", "skill_bundle"):
		return nil, fault.New(fault.Unsupported, "it has %d files, and the agent cannot be handed them: its card takes no skill_bundle; give a skill of %s alone",
			len(l.Files), artifact.SkillFile)
	default:
		l.text = ""
	}
	return l, nil
}

func takesText(offered *card.Extension) bool {
	return offered.Takes("add", "name", "description", "skill_md")
}

// skillAt lists the files below a URL of the object store and reads the SKILL.md among them.
func (d Deps) skillAt(ctx context.Context, url string) ([]objects.SkillFile, string, error) {
	if !d.Objects.Owns(url) {
		return nil, "", fault.New(fault.Invalid, "it is no URL of the object store")
	}
	prefix := strings.TrimRight(url, "/") + "/"
	found, err := d.Objects.ListAt(ctx, prefix)
	if err == nil && !slices.Contains(found, prefix+artifact.SkillFile) {
		err = fault.New(fault.NotFound, "there is no %s under %s", artifact.SkillFile, prefix)
	}
	if err != nil {
		return nil, "", err
	}
	files := make([]objects.SkillFile, len(found))
	for i, u := range found {
		files[i] = objects.SkillFile{Path: u[len(prefix):], URL: u}
	}
	r, err := d.Objects.Open(ctx, prefix+artifact.SkillFile)
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxSkillFile+1))
	if err == nil && len(text) > maxSkillFile {
		err = fault.New(fault.Invalid, "it is larger than %d MiB", maxSkillFile>>20)
	}
	return files, string(text), fault.At(err, "%s", artifact.SkillFile)
}
