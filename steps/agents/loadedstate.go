package agents

import (
	"context"
	"fmt"
	"slices"
	"time"

	"agentenv/agent"
	"agentenv/agent/objects"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
	"agentenv/task"
)

// byObjects is how states and changelogs are moved, as records say it: the protocol has no other form for them.
const byObjects = "objects"

// beginning is what the store holds for an agent that begins: it is looked up before the agent is deployed, so that what is not there costs no
// sandbox.
type beginning struct {
	skills   []objects.Skill
	source   artifact.Artifact // of snapshot; nil = it begins from none
	snapshot objects.Snapshot
	replay   *objects.Replay    // nil = none
	record   *objects.Recording // nil = the agent records nothing
}

// begin looks up what the step says the agent begins with; ttl is how long its sandbox lives.
func (a *deployAgent) begin(ctx context.Context, r *task.Run, ttl time.Duration) (*beginning, error) {
	b := &beginning{}
	var err error
	if b.skills, err = a.learned(ctx); err != nil {
		return nil, err
	}
	if id := a.fields.Str("agent_snapshot_files_artifact_id"); id != "" {
		if err := b.find(ctx, a.deps, artifact.Ref{ID: id, Version: a.snapshotVersion}); err != nil {
			return nil, err
		}
	}
	if url := a.fields.Str("agent_changelog_object_url"); url != "" {
		b.replay = &objects.Replay{ObjectURL: url, Resume: true, TargetContextID: a.target()}
		if n, given := a.fields.Int(cutoff); given {
			b.replay.Before = &n
		}
		found, err := a.deps.Mover.ListChangelog(ctx, *b.replay)
		if err != nil {
			return nil, fault.At(err, "agent_changelog_object_url")
		}
		if len(found) == 0 {
			warn(r, fmt.Sprintf("deploy_agent %q: there is nothing to replay at %s", r.StepID, url))
		}
	}
	if b.source == nil && b.replay == nil && a.target() != "" {
		warn(r, fmt.Sprintf("deploy_agent %q: agent_snapshot_target_context_id says where a kept state is loaded, and the step names none, so nothing is", r.StepID))
	}
	if a.fields.Bool("enable_agent_changelog") {
		b.record, err = a.recording(ctx, r, ttl)
	}
	return b, err
}

func (a *deployAgent) target() string { return a.fields.Str("agent_snapshot_target_context_id") }

// find looks up the objects of a snapshot. An artifact without a trajectory is the state of no agent that another could go on from.
func (b *beginning) find(ctx context.Context, d Deps, ref artifact.Ref) error {
	u, err := artifact.GetAs[*artifact.Universe](ctx, d.Artifacts, ref)
	if err != nil {
		return fault.At(err, "agent_snapshot_files_artifact_id")
	}
	members, err := d.Artifacts.Members(ctx, u)
	if err != nil {
		return err
	}
	state := slices.DeleteFunc(members, func(m artifact.Member) bool { return m.Name != "trajectory" && m.Name != "workspace" })
	for _, m := range state {
		if m.Name == "trajectory" {
			b.snapshot.Trajectory = m.URL
		} else {
			b.snapshot.Workspace = m.URL
		}
	}
	if b.snapshot.Trajectory == "" {
		return fault.New(fault.Invalid, "artifact %s v%d is not a portable snapshot: it has no object named trajectory; name one that snapshot_agent_state made", u.ID(), u.Version()).WithClass("RuntimeError")
	}
	b.source = u
	return fault.At(d.Artifacts.Measure(ctx, state), "artifact %s v%d", u.ID(), u.Version())
}

// deliverable says what the agent, by its card, cannot be given of it, with nothing asked of the agent.
func (a *deployAgent) deliverable(e agent.Endpoint, b *beginning) error {
	if len(b.skills) > 0 && e.Card.Extension(card.SkillConfig) == nil {
		return fault.New(fault.Unsupported, "the agent %q takes no skills: its card offers no skill-config; drop skills, or use an agent that takes them", a.name).WithClass("RuntimeError")
	}
	m := a.deps.Mover
	for _, s := range b.skills {
		if err := m.CanAddSkill(e, s); err != nil {
			return fault.At(err, "the skill %q for the agent %q", s.Name, a.name)
		}
	}
	if b.source != nil {
		if err := m.CanLoadSnapshot(e, b.snapshot, a.target()); err != nil {
			return fault.At(err, "the agent %q cannot begin from a snapshot", a.name)
		}
	}
	if b.replay != nil {
		if err := m.CanApplyChangelog(e, *b.replay); err != nil {
			return fault.At(err, "the agent %q cannot replay a changelog", a.name)
		}
	}
	if b.record != nil {
		return fault.At(m.CanEnableChangelog(e, *b.record), "the agent %q cannot record what it changes", a.name)
	}
	return nil
}

// row is an item for a list of the run's metadata.
type row struct {
	list string
	item *doc.Object
}

// restore has the agent begin from what is kept, and then record what it changes. The rows say what was done.
func (a *deployAgent) restore(ctx context.Context, r *task.Run, e agent.Endpoint, b *beginning) ([]row, error) {
	var out []row
	if b.source != nil {
		into, err := a.deps.Mover.LoadSnapshot(ctx, e, b.snapshot, a.target())
		if err != nil {
			return nil, fault.At(err, "load the snapshot %s v%d", b.source.ID(), b.source.Version())
		}
		a.landed(r, e, "loaded the snapshot", into)
		out = append(out, row{"agent_loaded_snapshots", doc.Of("agent_name", a.name, "context_id", into, "source_artifact_id", b.source.ID(), "source_artifact_version", doc.Int(b.source.Version()))})
	}
	if b.replay != nil {
		done, err := a.deps.Mover.ApplyChangelog(ctx, e, *b.replay)
		if err != nil {
			return nil, fault.At(err, "replay the changelog %s", b.replay.ObjectURL)
		}
		r.Log.Info("changelog replayed", "agent", a.name, "increments", done.Count, "context", done.ContextID)
		a.landed(r, e, "replayed the changelog", done.ContextID)
		out = append(out, row{"agent_changelog_rewinds", doc.Of("agent_name", a.name, "context_id", textOrNull(done.ContextID), "up_to_tool_call_exclusive", a.fields.Value(cutoff),
			"transfer_mode", byObjects, "object_url", b.replay.ObjectURL)})
	}
	if b.record != nil {
		item, err := a.startRecording(ctx, e, *b.record)
		if err != nil {
			return nil, fault.At(err, "have the agent %q record what it changes", a.name)
		}
		out = append(out, row{changelogs, item})
	}
	return out, nil
}

// landed warns when a conversation does not go on where the step says: prompts there would begin a new one.
func (a *deployAgent) landed(r *task.Run, e agent.Endpoint, did, into string) {
	into = secrets(a.deps.Deployer.Secrets(e.Sandbox)).text(into)
	if want := a.target(); want != "" && into != want {
		warn(r, fmt.Sprintf("deploy_agent %q: the agent %q %s, and the conversation goes on as %q, not as %q", r.StepID, a.name, did, into, want))
	}
}
