package agents

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"agentenv/agent"
	"agentenv/agent/objects"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/transfer"
	"agentenv/store/doc"
	"agentenv/task"
)

const (
	// changelogs is the list in a run's metadata that says which agents record what they change.
	changelogs = "agent_changelog"
	cutoff     = "agent_changelog_toolcall_position_exclusive"
)

// recording says where the agent records what it changes. Where an earlier attempt of the step, or another run without an id, has recorded
// already, a new folder is taken: a replay of both together would make what nobody did.
func (a *deployAgent) recording(ctx context.Context, r *task.Run, ttl time.Duration) (*objects.Recording, error) {
	plain := func(s string) string { return strings.ReplaceAll(s, "/", "_") }
	if !transfer.Relative(plain(a.name)) {
		return nil, fault.New(fault.Invalid, "enable_agent_changelog: the agent_name %q cannot be the name of the changelog's folder; give the agent another one", a.name)
	}
	key := a.deps.key("agent_changelog/" + plain(cmp.Or(r.Instance, "noinstance")) + "/" + plain(a.name))
	url, err := a.deps.Objects.URL(key)
	if err != nil {
		return nil, err
	}
	found, err := a.deps.Objects.ListAt(ctx, url+"/")
	if err != nil {
		return nil, err
	}
	// A name that was changed may be another agent's own.
	if len(found) > 0 || plain(a.name) != a.name {
		url += "-" + artifact.RandomHex(4)
	}
	return &objects.Recording{ObjectURL: url, Lifetime: ttl}, nil
}

// startRecording has the agent record what it changes, and returns what the run keeps of it: not where it is staged, which is a secret and is
// found again from the sandbox.
func (a *deployAgent) startRecording(ctx context.Context, e agent.Endpoint, to objects.Recording) (*doc.Object, error) {
	var err error
	if to.StagingFolder, err = a.deps.Deployer.StagingFolder(e.Sandbox); err != nil {
		return nil, err
	}
	c, err := a.deps.Mover.EnableChangelog(ctx, e, to)
	if err != nil {
		return nil, err
	}
	item := doc.Of("agent_name", a.name, "roots", doc.MustFrom(c.Roots), "transfer_mode", byObjects, "object_url", c.ObjectURL)
	if c.StagingURL != "" {
		item.Set("staging_max_object_bytes", doc.Int(c.StagingMaxBytes))
	}
	if c.GrantPort != 0 {
		item.Set("grant_port", doc.Int(c.GrantPort))
	}
	return item, nil
}

// changelog returns what a run recorded of the changelog that an agent writes, zero when there is none. A record of another program holds the URL at
// which it is staged.
func (d Deps) changelog(recorded *doc.Object, name string, e agent.Endpoint) (c objects.Changelog) {
	for _, v := range slices.Backward(recorded.Obj("metadata").Arr(changelogs)) {
		o, _ := v.(*doc.Object)
		if o.Str("agent_name") != name {
			continue
		}
		c = objects.Changelog{ObjectURL: o.Str("object_url"), StagingURL: o.Str("staging_url")}
		most, staged := o.Int("staging_max_object_bytes")
		port, _ := o.Int("grant_port")
		c.StagingMaxBytes, c.GrantPort = most, int(port)
		if c.StagingURL == "" && staged && e.Sandbox != "" {
			if folder, err := d.Deployer.StagingFolder(e.Sandbox); err == nil {
				c.StagingURL = d.Mover.StagingURL(e, folder)
			}
		}
		return c
	}
	return c
}

// resumeRecording has what an agent records of its changes arrive in this process, should an earlier one have begun it.
func (d Deps) resumeRecording(ctx context.Context, recorded *doc.Object, name string, e agent.Endpoint) error {
	return fault.At(d.Mover.Resume(ctx, d.changelog(recorded, name, e)), "the changelog of the agent %q cannot go on", name)
}

// keepDrained brings what an agent stages of its changelog into the store until the function it returns is called, and then once more. It
// never fails: what goes wrong is logged.
func (d Deps) keepDrained(ctx context.Context, r *task.Run, name string, e agent.Endpoint) (end func()) {
	c := d.changelog(r.Context(), name, e)
	if c.StagingURL == "" {
		return func() {}
	}
	until, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		d.Mover.KeepDrained(ctx, e, c, until)
	}()
	return func() {
		close(until)
		<-done
	}
}

// Drain brings what the agents in a sandbox staged of their changelogs into the store, by the context of their run: it is for a sandbox that is
// about to end. It takes 120 seconds at most and never fails: what goes wrong is logged, and ends with the sandbox. A second call finds
// nothing more. It is safe for concurrent use.
func (d Deps) Drain(ctx context.Context, recorded *doc.Object, sandboxID string) {
	for _, v := range recorded.Arr("deployed_agents") {
		o, _ := v.(*doc.Object)
		if o.Str("sandbox_id") != sandboxID || recorded.Obj("metadata").Value(changelogs) == nil {
			continue
		}
		e, err := d.Deployer.Endpoint(o)
		if err != nil {
			continue // nobody knows where it answers
		}
		if c := d.changelog(recorded, o.Str("agent_name"), e); c.StagingURL != "" {
			d.Mover.LastDrain(ctx, e, c)
		}
	}
}
