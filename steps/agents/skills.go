package agents

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"agentenv/agent"
	"agentenv/agent/objects"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
	"agentenv/task"
)

func skillsType(d Deps) *task.StepType {
	return &task.StepType{
		Name:    "add_skills",
		Summary: "Give a deployed agent skills, command-line tools and file sets",
		Family:  "agents",
		Doc: "A skill is written in the step (`name`, `description`, `body` and optionally `license`, `compatibility`, `metadata`, `allowed_tools`), lies at an object URL (`name`, " +
			"`description`, `object_url`), or is an artifact (`skill_artifact_id`). A command-line tool or file set must have been loaded into the agent by load_artifact before: the agent " +
			"then gets a skill that says where it is. The agent must take skills: its card offers skill-config. Everything is read and checked before the agent is told anything.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			{Name: "skills", Kind: task.List, Items: task.ObjectKind, Default: []any{}, Doc: "what to add, in order"},
			{Name: "cli_artifact_ids", Kind: task.List, Items: task.String, Default: []any{}, Doc: "command-line tools that are installed in the agent"},
			{Name: "file_artifact_universe_ids", Kind: task.List, Items: task.String, Default: []any{}, Doc: "file sets that are loaded into the agent"},
			{Name: "agent_name", Kind: task.String, Default: defaultAgent, Doc: "the agent to give them to"},
		},
		Refs: []task.Ref{
			{Path: "skills[].skill_artifact_id", Kind: "artifact", VersionField: "skill_artifact_version", ArtifactType: artifact.TypeSkill},
			{Path: "cli_artifact_ids[]", Kind: "artifact", ArtifactType: artifact.TypeCLI},
			{Path: "file_artifact_universe_ids[]", Kind: "artifact", ArtifactType: artifact.TypeUniverse},
		},
		Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) { return parseSkills(d, f) },
		Check: func(s *task.Step) []string { return s.Action.(*addSkills).problems() },
	}
}

type addSkills struct {
	deps       Deps
	agent      string
	sources    []skillSource
	clis, sets []string
}

func parseSkills(d Deps, f *doc.Object) (task.Action, *doc.Object, error) {
	a := &addSkills{deps: d, agent: f.Str("agent_name"), clis: names(f.Arr("cli_artifact_ids")), sets: names(f.Arr("file_artifact_universe_ids"))}
	stored := []any{}
	for i, v := range f.Arr("skills") {
		o, _ := v.(*doc.Object)
		source, kept, err := parseSource(o)
		if err != nil {
			return nil, nil, fault.At(err, "skills[%d]", i)
		}
		a.sources, stored = append(a.sources, source), append(stored, kept)
	}
	return a, f.Clone().Set("skills", stored), nil
}

func names(list []any) []string {
	var out []string
	for _, v := range list {
		out = append(out, text(v))
	}
	return out
}

// problems says what is wrong without a look at anything; a text with a place for a seed's value is not known yet.
func (a *addSkills) problems() (out []string) {
	if len(a.sources)+len(a.clis)+len(a.sets) == 0 {
		out = append(out, "add_skills names nothing to add: give skills, cli_artifact_ids or file_artifact_universe_ids")
	}
	for i, s := range a.sources {
		if s.text == "" || strings.Contains(s.text, "<") {
			continue
		}
		if _, _, err := artifact.ParseSkill(s.name, []byte(s.text)); err != nil {
			out = append(out, fmt.Sprintf("skills[%d]: %v", i, err))
		}
	}
	return out
}

// Execute adds the skills one after the other.
func (a *addSkills) Execute(ctx context.Context, r *task.Run) error {
	err := a.execute(ctx, r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fault.At(err, "add_skills %q", r.StepID)
}

func (a *addSkills) execute(ctx context.Context, r *task.Run) error {
	record, e, err := a.deps.find(r, a.agent)
	if err != nil {
		return err
	}
	offered := e.Card.Extension(card.SkillConfig)
	switch {
	case len(a.sources)+len(a.clis)+len(a.sets) == 0:
		return fault.New(fault.Invalid, "there is nothing to add: give skills, cli_artifact_ids or file_artifact_universe_ids")
	case record.Str("instance_id") == "":
		return fault.New(fault.Invalid, "the agent %q was not deployed by this program, so it gets no skills from it", a.agent).WithClass("RuntimeError")
	case offered == nil || !offered.Takes("add", "name", "description", "skill_md") && len(a.clis)+len(a.sets) > 0:
		return fault.New(fault.Unsupported, "the agent %q takes no skills: its card offers no skill-config that takes their text; use an agent that takes them", a.agent).WithClass("RuntimeError")
	}
	var all []objects.Skill
	for i, s := range a.sources {
		skill, err := a.deps.fetch(ctx, s)
		if err == nil {
			err = a.deps.Mover.CanAddSkill(e, skill)
		}
		if err != nil {
			return fault.At(err, "skills[%d] (%s)", i, cmp.Or(s.ref.ID, s.name))
		}
		all = append(all, skill)
	}
	of, err := a.loaded(r)
	if err != nil {
		return err
	}
	for _, s := range append(all, of...) {
		if err := a.add(ctx, r, e, s); err != nil {
			return err
		}
	}
	return nil
}

// add gives the agent one skill. One that it has already by that name and description is what an earlier attempt of the step gave it.
func (a *addSkills) add(ctx context.Context, r *task.Run, e agent.Endpoint, s objects.Skill) error {
	err := a.deps.Mover.AddSkill(ctx, e, s)
	if !fault.Is(err, fault.Conflict) {
		return err
	}
	held, listing := a.deps.Client.Call(ctx, e, agent.Call{URI: card.SkillConfig, Op: "list", Timeout: skillLimit})
	if one := held.Obj("skills").Obj(s.Name); listing != nil || one == nil || one.Str("description") != s.Description {
		return err
	}
	warn(r, fmt.Sprintf("add_skills %q: the agent %q has the skill %q already, so it was left as it is", r.StepID, a.agent, s.Name))
	return nil
}
