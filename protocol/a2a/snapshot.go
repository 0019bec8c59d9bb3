package a2a

import (
	"context"

	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/protocol/transfer"
)

// Snapshotter is an agent that can write its state to objects and go on from one that was written. It moves the objects itself.
type Snapshotter interface {
	// Save writes the state of a context. NotFound for a context it does not know.
	Save(ctx context.Context, contextID string, to SnapshotTargets) (SnapshotWritten, error)
	// Load makes a context of a state and returns its id: the one that is given, or "" for a new one.
	Load(ctx context.Context, from SnapshotSources, targetContextID string) (contextID string, err error)
}

// Changelogger is a Snapshotter that also writes what changes in its folders, tool call by tool call.
type Changelogger interface {
	Snapshotter
	// EnableChangelog begins to write; roots nil = the agent's own. It returns the folders it watches.
	EnableChangelog(ctx context.Context, to transfer.NamespaceGrant, roots []string) ([]string, error)
	// ApplyChangelog makes the changes of increments, in order. The context it returns is "" when the talk is not gone on with.
	ApplyChangelog(ctx context.Context, c Changelog) (contextID string, err error)
}

// SnapshotTargets are the objects a state is written to.
type SnapshotTargets struct {
	Trajectory transfer.WriteObject
	Workspace  *transfer.WriteObject // nil = not wanted
}

// SnapshotSources are the objects a state is read from.
type SnapshotSources struct {
	Trajectory transfer.ReadObject
	Workspace  *transfer.ReadObject // nil = there is none
}

// SnapshotWritten tells what was written.
type SnapshotWritten struct {
	Trajectory transfer.Uploaded
	Workspace  *transfer.Uploaded
}

// Changelog are changes to make. Sequences rise strictly.
type Changelog struct {
	Increments         []Increment
	ResumeConversation bool
	TargetContextID    string // "" = a new context
}

// Increment is what one tool call changed.
type Increment struct {
	Sequence int64
	Object   transfer.ReadObject
}

// Snapshot returns the extension of an agent whose state can be written and read; a Changelogger's changes too.
func Snapshot(of Snapshotter) Extension {
	ops := []Operation{
		Op("save", func(ctx context.Context, in snapshotSave) (snapshotSaved, error) {
			to := SnapshotTargets{Trajectory: in.Objects.Trajectory.WriteObject}
			if w := in.Objects.Workspace; w != nil {
				to.Workspace = &w.WriteObject
			}
			written, err := of.Save(ctx, in.ContextID, to)
			out := snapshotSaved{in.ContextID, map[string]Uploaded{"trajectory": {written.Trajectory}}}
			if written.Workspace != nil {
				out.Objects["workspace"] = Uploaded{*written.Workspace}
			}
			return out, err
		}),
		Op("load", func(ctx context.Context, in snapshotLoad) (snapshotLoaded, error) {
			from := SnapshotSources{Trajectory: in.Objects.Trajectory.ReadObject}
			if r := in.Objects.Workspace; r != nil {
				from.Workspace = &r.ReadObject
			}
			id, err := of.Load(ctx, from, text(in.TargetContextID))
			return snapshotLoaded{id}, err
		}),
	}
	if log, ok := of.(Changelogger); ok {
		ops = append(ops,
			Op("enable-changelog", func(ctx context.Context, in changelogEnable) (changelogEnabled, error) {
				roots, err := log.EnableChangelog(ctx, in.Namespace.NamespaceGrant, in.Roots)
				return changelogEnabled{roots}, err
			}),
			Op("apply-changelog", func(ctx context.Context, in changelogApply) (changelogApplied, error) {
				c := Changelog{ResumeConversation: in.Resume, TargetContextID: text(in.TargetContextID)}
				for _, i := range in.Increments {
					c.Increments = append(c.Increments, Increment{i.Sequence, i.Object.ReadObject})
				}
				out := changelogApplied{Count: len(c.Increments)}
				id, err := log.ApplyChangelog(ctx, c)
				if id != "" {
					out.ContextID = &id
				}
				return out, err
			}))
	}
	return Extension{URI: card.Snapshot, Description: "Save and load the agent's state", Operations: ops}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

type snapshotSave struct {
	ContextID string          `json:"context_id"`
	Objects   snapshotTargets `json:"objects"`
}

type snapshotTargets struct {
	Trajectory WriteObject  `json:"trajectory"`
	Workspace  *WriteObject `json:"workspace"`
}

type snapshotSaved struct {
	ContextID string              `json:"context_id"`
	Objects   map[string]Uploaded `json:"objects"`
}

type snapshotLoad struct {
	Objects         snapshotSources `json:"objects"`
	TargetContextID *string         `json:"target_context_id" agent:"min=1"`
}

type snapshotSources struct {
	Trajectory ReadObject  `json:"trajectory"`
	Workspace  *ReadObject `json:"workspace"`
}

type snapshotLoaded struct {
	ContextID string `json:"context_id"`
}

type changelogEnable struct {
	Namespace Namespace `json:"write_namespace"`
	Roots     []string  `json:"roots" agent:"optional"`
}

type changelogEnabled struct {
	Roots []string `json:"roots"`
}

type changelogApply struct {
	Increments      []changelogIncrement `json:"increments"`
	Resume          bool                 `json:"resume_conversation" agent:"optional"`
	TargetContextID *string              `json:"target_context_id" agent:"min=1"`
}

type changelogIncrement struct {
	Sequence int64      `json:"sequence" agent:"min=0"`
	Object   ReadObject `json:"object"`
}

type changelogApplied struct {
	Count     int     `json:"count"`
	ContextID *string `json:"context_id"`
}

// octets is the media type of all objects of a snapshot.
const octets = "application/octet-stream"

func mediaTypes(types ...string) error {
	for _, t := range types {
		if t != octets {
			return fault.New(fault.Invalid, "the objects of a snapshot have the media type %s", octets)
		}
	}
	return nil
}

// Validate refuses other media types.
func (t *snapshotTargets) Validate() error {
	if t.Workspace != nil {
		return mediaTypes(t.Trajectory.MediaType, t.Workspace.MediaType)
	}
	return mediaTypes(t.Trajectory.MediaType)
}

// Validate refuses other media types.
func (s *snapshotSources) Validate() error {
	if s.Workspace != nil {
		return mediaTypes(s.Trajectory.MediaType, s.Workspace.MediaType)
	}
	return mediaTypes(s.Trajectory.MediaType)
}

// Validate refuses sequences that do not rise, and other media types.
func (c *changelogApply) Validate() error {
	for i, inc := range c.Increments {
		if i > 0 && inc.Sequence <= c.Increments[i-1].Sequence {
			return fault.New(fault.Invalid, "the sequences of increments must rise strictly")
		}
		if err := mediaTypes(inc.Object.MediaType); err != nil {
			return err
		}
	}
	return nil
}
