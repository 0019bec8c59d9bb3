package a2a

import (
	"context"
	"regexp"
	"slices"
	"sync"

	"agentenv/fault"
	"agentenv/protocol/card"
)

// SkillConfig returns the extension by which clients install skills. inline does what the agent needs for a skill that comes as its
// SKILL.md, bundle for one whose files are granted; one of them may be nil, and that form is then not taken. The kit looks for duplicates,
// calls one at a time, and shows what is installed. An error records nothing.
func SkillConfig(inline func(context.Context, Skill) error, bundle func(context.Context, SkillBundle) error) Extension {
	return Extension{URI: card.SkillConfig, Description: "Install skills", bind: func(s *Server) []Operation {
		t := &s.skills
		return []Operation{
			Cases("add",
				Case("inline", func(ctx context.Context, in skillInline) (skillAdded, error) {
					return t.add(Skill(in), func() error { return inline(ctx, Skill(in)) })
				}).When(inline != nil),
				Case("bundle", func(ctx context.Context, in skillBundle) (skillAdded, error) {
					return t.add(Skill{Name: in.Name, Description: in.Description}, func() error { return bundle(ctx, in.bundle()) })
				}).When(bundle != nil)),
			Op("list", t.list),
		}
	}}
}

// skillTable are the skills: those of the card and those that clients installed.
type skillTable struct {
	installing sync.Mutex
	own        []CardSkill

	mu    sync.Mutex
	extra []Skill
}

type skillInline struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	SkillMD     string `json:"skill_md"`
}

// Validate refuses names that are no name of a folder.
func (a *skillInline) Validate() error { return skillName(a.Name) }

type skillAdded struct {
	Name string `json:"name"`
}

type skillList struct {
	Skills map[string]skillShown `json:"skills"`
}

type skillShown struct {
	Description string `json:"description"`
}

var skillNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func skillName(name string) error {
	if !skillNames.MatchString(name) {
		return fault.New(fault.Invalid, "the name of a skill must be a letter or digit, then up to 127 of letters, digits, '.', '_' and '-'")
	}
	return nil
}

func (t *skillTable) add(skill Skill, install func() error) (skillAdded, error) {
	t.installing.Lock()
	defer t.installing.Unlock()
	if slices.ContainsFunc(t.own, func(k CardSkill) bool { return k.Name == skill.Name }) ||
		slices.ContainsFunc(t.all(), func(k Skill) bool { return k.Name == skill.Name }) {
		return skillAdded{}, fault.New(fault.Exists, "the agent has a skill %q already", skill.Name)
	}
	if err := install(); err != nil {
		return skillAdded{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.extra = append(t.extra, skill)
	return skillAdded{skill.Name}, nil
}

// all returns the installed skills in order.
func (t *skillTable) all() []Skill {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.extra)
}

func (t *skillTable) list(context.Context, struct{}) (skillList, error) {
	out := skillList{Skills: map[string]skillShown{}}
	for _, k := range t.own {
		out.Skills[k.Name] = skillShown{k.Description}
	}
	for _, k := range t.all() {
		out.Skills[k.Name] = skillShown{k.Description}
	}
	return out, nil
}
