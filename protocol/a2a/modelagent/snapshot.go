package modelagent

import (
	"context"
	"encoding/json"
	"io"
	"os"

	wire "github.com/a2aproject/a2a-go/a2a"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/transfer"
)

// maxState is how large the conversation of a snapshot may be, in bytes.
const maxState = 256 << 20

// state is a conversation as a snapshot keeps it.
type state struct {
	Format   string   `json:"format"`
	API      string   `json:"api"` // in whose words the messages are
	Messages []object `json:"messages"`
}

// snapshots is the model as an a2a.Snapshotter: the conversation is the trajectory, the folder in which commands run the workspace.
type snapshots struct {
	*model
	objects *transfer.Client
}

// Save implements a2a.Snapshotter. A conversation is kept as it was at the end of its last answer.
func (s snapshots) Save(ctx context.Context, id string, to a2a.SnapshotTargets) (out a2a.SnapshotWritten, err error) {
	messages, known := s.remembered(id)
	if !known {
		return out, fault.New(fault.NotFound, "there is no conversation %q that has been answered", id)
	}
	text, err := json.Marshal(state{Format, s.o.API, messages})
	if err != nil {
		return out, err
	}
	if out.Trajectory, err = s.objects.Upload(ctx, to.Trajectory, transfer.Bytes(text)); err != nil || to.Workspace == nil {
		return out, err
	}
	packed, err := os.CreateTemp("", "workspace-*.tgz")
	if err != nil {
		return out, fault.Wrap(fault.Unavailable, err, "the workspace cannot be packed")
	}
	defer os.Remove(packed.Name())
	err = pack(ctx, s.o.Dir, packed)
	if cerr := packed.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return out, fault.Wrap(fault.Unavailable, err, "the workspace cannot be packed")
	}
	source, err := transfer.File(packed.Name())
	if err != nil {
		return out, err
	}
	w, err := s.objects.Upload(ctx, *to.Workspace, source)
	out.Workspace = &w
	return out, err
}

// Load implements a2a.Snapshotter. What the workspace holds comes over the files that are there. A conversation of this id that there is
// already is a Conflict.
func (s snapshots) Load(ctx context.Context, from a2a.SnapshotSources, id string) (string, error) {
	if id == "" {
		id = wire.NewContextID()
	}
	if _, known := s.remembered(id); known {
		return "", fault.New(fault.Conflict, "there is a conversation %q already", id)
	}
	var kept state
	if err := s.fetch(ctx, from.Trajectory, func(body io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(body, maxState+1))
		if err == nil && len(text) > maxState {
			err = fault.New(fault.Invalid, "the conversation has more than %d bytes", maxState)
		}
		if err == nil && json.Unmarshal(text, &kept) != nil || err == nil && kept.Format != Format {
			err = fault.New(fault.Invalid, "the trajectory is no conversation of this agent")
		}
		return err
	}); err != nil {
		return "", err
	}
	if kept.API != s.o.API {
		return "", fault.New(fault.Invalid, "the conversation is one with an endpoint of %s, and this agent's is of %s", kept.API, s.o.API)
	}
	if from.Workspace != nil {
		if err := s.fetch(ctx, *from.Workspace, func(body io.Reader) error { return unpack(body, s.o.Dir) }); err != nil {
			return "", err
		}
	}
	s.keep(id, kept.Messages)
	return id, nil
}

// fetch brings an object into a file first: what it is of is known to be whole before it is used.
func (s snapshots) fetch(ctx context.Context, o transfer.ReadObject, use func(io.Reader) error) error {
	f, err := os.CreateTemp("", "snapshot-*")
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the snapshot cannot be read")
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := s.objects.Fetch(ctx, o, func(_ string, body io.Reader) error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := f.Truncate(0); err != nil {
			return err
		}
		_, err := io.Copy(f, body)
		return err
	}); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return use(f)
}
