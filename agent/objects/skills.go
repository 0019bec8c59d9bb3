package objects

import (
	"context"
	"io"
	"slices"
	"strings"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/protocol/transfer"
	"agentenv/store/doc"
)

// maxSkillText is how large a SKILL.md may be, in bytes.
const maxSkillText = 4 << 20

// Skill is a skill: the text of its SKILL.md, and the objects of all its files where it lies in the store.
type Skill struct {
	Name, Description string
	Text              string      // of its SKILL.md; "" = it goes as objects
	Files             []SkillFile // one of them is SKILL.md; nil = there is only the text
}

// SkillFile is one file of a skill: its path below the skill's folder, with slashes, and its object URL.
type SkillFile struct{ Path, URL string }

// ReadSkill reads a skill from the folder at an object URL: its text and its files, without name and description. A URL of another store and a
// SKILL.md of more than 4 MiB are Invalid, a folder without a SKILL.md is NotFound.
func (m *Mover) ReadSkill(ctx context.Context, url string) (Skill, error) {
	var s Skill
	if !m.o.Store.Owns(url) {
		return s, fault.New(fault.Invalid, "%s: it is no URL of the object store", url)
	}
	folder := strings.TrimRight(url, "/") + "/"
	found, err := m.o.Store.ListAt(ctx, folder)
	if err == nil && !slices.Contains(found, folder+artifact.SkillFile) {
		err = fault.New(fault.NotFound, "there is no %s under it", artifact.SkillFile)
	}
	if err != nil {
		return s, fault.At(err, "%s", folder)
	}
	for _, u := range found {
		s.Files = append(s.Files, SkillFile{Path: u[len(folder):], URL: u})
	}
	r, err := m.o.Store.Open(ctx, folder+artifact.SkillFile)
	if err != nil {
		return s, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxSkillText+1))
	if err == nil && len(text) > maxSkillText {
		err = fault.New(fault.Invalid, "it is larger than %d MiB", maxSkillText>>20)
	}
	s.Text = string(text)
	return s, fault.At(err, "%s", folder+artifact.SkillFile)
}

// CanAddSkill says why AddSkill cannot be asked of an agent, nil when it can; nothing is sent.
func (m *Mover) CanAddSkill(e agent.Endpoint, s Skill) error {
	offered := e.Card.Extension(card.SkillConfig)
	switch {
	case offered == nil:
		return fault.New(fault.Unsupported, "%s takes no skills: its card offers no skill-config; use an agent that takes them", e)
	case s.inline(e):
		return nil
	case len(s.Files) == 0:
		return fault.New(fault.Unsupported, "the card of %s takes no text of a skill; give the skill as an artifact", e)
	case !offered.Takes("add", bundleForm().objects...):
		return fault.New(fault.Unsupported, "it has %d files, and %s cannot be handed them: its card takes no skill_bundle; give a skill of %s alone", len(s.Files), e, artifact.SkillFile)
	}
	urls, err := s.urls()
	if err == nil {
		_, err = m.mode(e, bundleForm(), urls...)
	}
	return err
}

// AddSkill has an agent install a skill: from its text where that is all there is and the agent takes it, else from its objects. A name that
// the agent has already is a Conflict error.
func (m *Mover) AddSkill(ctx context.Context, e agent.Endpoint, s Skill) error {
	if !s.inline(e) {
		return m.AddSkillBundle(ctx, e, s)
	}
	_, err := m.o.Client.Call(ctx, e, agent.Call{URI: card.SkillConfig, Op: "add", Timeout: inlineLimit,
		Body: doc.Of("name", s.Name, "description", s.Description, "skill_md", s.Text)})
	return fault.At(err, "the skill %q", s.Name)
}

// inline reports whether a skill goes as a text.
func (s Skill) inline(e agent.Endpoint) bool {
	return len(s.Files) < 2 && s.Text != "" && e.Card.Extension(card.SkillConfig).Takes("add", "name", "description", "skill_md")
}

func bundleForm() form {
	return form{uri: card.SkillConfig, op: "add", objects: []string{"name", "description", "skill_bundle"}}
}

// AddSkillBundle has an agent install a skill from its objects. A bundle of more than 1,000 files or 1 GiB, with two files of one path, with
// paths that are not plain relative ones or without a SKILL.md is Invalid, with nothing sent. A name that the agent has already is a
// Conflict error.
func (m *Mover) AddSkillBundle(ctx context.Context, e agent.Endpoint, s Skill) error {
	urls, err := s.urls()
	if err != nil {
		return err
	}
	x, err := m.exchange(e, bundleForm(), urls...)
	if err != nil {
		return fault.At(err, "the skill %q", s.Name)
	}
	defer x.close(ctx)
	files, total := make([]any, len(s.Files)), int64(0)
	for i, f := range s.Files {
		o, err := x.read(ctx, f.URL, f.Path, maxSkillBytes)
		if err != nil {
			return fault.At(err, "the skill %q", s.Name)
		}
		if total += o.MaxBytes; total > maxSkillBytes {
			return fault.New(fault.Invalid, "the skill %q: its files have more than %d bytes together", s.Name, maxSkillBytes)
		}
		files[i] = doc.Of("path", f.Path, "object", wire(o))
	}
	answer, err := x.call(ctx, doc.Of("name", s.Name, "description", s.Description, "skill_bundle", doc.Of("max_total_bytes", doc.Int(total), "files", files)))
	if err == nil {
		_, err = x.field(answer, "name")
	}
	return fault.At(err, "the skill %q", s.Name)
}

// urls returns where the files are, once they can be a skill.
func (s Skill) urls() ([]string, error) {
	if len(s.Files) > maxSkillFiles {
		return nil, fault.New(fault.Invalid, "the skill %q has %d files, more than the %d that an agent is given", s.Name, len(s.Files), maxSkillFiles)
	}
	seen := map[string]bool{}
	var urls []string
	for _, f := range s.Files {
		switch {
		case !transfer.Relative(f.Path):
			return nil, fault.New(fault.Invalid, "the skill %q: %q is no plain relative path", s.Name, f.Path)
		case seen[f.Path]:
			return nil, fault.New(fault.Invalid, "the skill %q has two files %q", s.Name, f.Path)
		}
		seen[f.Path] = true
		urls = append(urls, f.URL)
	}
	if !seen[artifact.SkillFile] {
		return nil, fault.New(fault.Invalid, "the skill %q has no file %s", s.Name, artifact.SkillFile)
	}
	return urls, nil
}
