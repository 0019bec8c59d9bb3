package objects

import (
	"context"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/protocol/transfer"
	"agentenv/store/doc"
)

// Skill is a skill whose files are objects.
type Skill struct {
	Name, Description string
	Files             []SkillFile // one of them is SKILL.md
}

// SkillFile is one file of a skill: its path below the skill's folder, with slashes, and its object URL.
type SkillFile struct{ Path, URL string }

// AddSkillBundle has an agent install a skill from its objects. A bundle of more than 1,000 files or 1 GiB, with two files of one path, with
// paths that are not plain relative ones or without a SKILL.md is Invalid, with nothing sent. A name that the agent has already is a
// Conflict error.
func (m *Mover) AddSkillBundle(ctx context.Context, e agent.Endpoint, s Skill) error {
	urls, err := s.urls()
	if err != nil {
		return err
	}
	x, err := m.exchange(e, form{uri: card.SkillConfig, op: "add", objects: []string{"name", "description", "skill_bundle"}}, urls...)
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
	if !seen["SKILL.md"] {
		return nil, fault.New(fault.Invalid, "the skill %q has no file SKILL.md", s.Name)
	}
	return urls, nil
}
