// Keeper is an agent for tests that remembers what it is told, writes that to objects, and goes on from them: as a snapshot of a conversation,
// and as a changelog with an increment for each message. It serves as the environment says: A2A_HOST, A2A_PORT, AGENTENV_A2A_TOKEN.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/transfer"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	settings, err := a2a.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	settings.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	k := &keeper{client: transfer.NewClient(transfer.Options{}), told: map[string][]string{}}
	defer k.client.Close()
	return a2a.Main(ctx, a2a.Agent{Identity: a2a.Identity{Name: "Keeper", Description: "Remembers what it is told", Version: "1.0.0"}, Run: k.answer,
		Config: func() any { return &config{BaseConfig: a2a.DefaultBase()} }, Extensions: []a2a.Extension{a2a.Snapshot(k)}}, settings)
}

type config struct{ a2a.BaseConfig }

type keeper struct {
	client *transfer.Client

	mu     sync.Mutex
	told   map[string][]string // by context
	log    *transfer.Namespace // nil = no changelog is written
	writes int
}

func (k *keeper) answer(ctx context.Context, r *a2a.Request) (a2a.Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told[r.ContextID] = append(k.told[r.ContextID], r.Text())
	if k.log != nil {
		k.writes++
		if err := k.log.Put(ctx, fmt.Sprintf("%06d.txt", k.writes), transfer.Bytes([]byte(r.Text()))); err != nil {
			return a2a.Result{}, err
		}
	}
	return a2a.Result{Parts: []a2a.Part{a2a.Text("I heard " + strings.Join(k.told[r.ContextID], ", "))}}, nil
}

// Save implements a2a.Snapshotter.
func (k *keeper) Save(ctx context.Context, id string, to a2a.SnapshotTargets) (out a2a.SnapshotWritten, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	told, known := k.told[id]
	if !known {
		return out, fault.New(fault.NotFound, "there is no context %s", id)
	}
	text, err := json.Marshal(told)
	if err != nil {
		return out, err
	}
	if out.Trajectory, err = k.client.Upload(ctx, to.Trajectory, transfer.Bytes(text)); err != nil || to.Workspace == nil {
		return out, err
	}
	w, err := k.client.Upload(ctx, *to.Workspace, transfer.Bytes(nil))
	out.Workspace = &w
	return out, err
}

// Load implements a2a.Snapshotter.
func (k *keeper) Load(ctx context.Context, from a2a.SnapshotSources, id string) (string, error) {
	text, err := k.read(ctx, from.Trajectory)
	if err != nil {
		return "", err
	}
	var told []string
	if err := json.Unmarshal(text, &told); err != nil {
		return "", fault.Wrap(fault.Invalid, err, "the trajectory")
	}
	return k.goOn(id, told), nil
}

// EnableChangelog implements a2a.Changelogger.
func (k *keeper) EnableChangelog(_ context.Context, to transfer.NamespaceGrant, _ []string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.log = k.client.Namespace(to)
	return []string{"/work"}, nil
}

// ApplyChangelog implements a2a.Changelogger.
func (k *keeper) ApplyChangelog(ctx context.Context, c a2a.Changelog) (string, error) {
	var told []string
	for _, i := range c.Increments {
		text, err := k.read(ctx, i.Object)
		if err != nil {
			return "", err
		}
		told = append(told, string(text))
	}
	return k.goOn(c.TargetContextID, told), nil
}

func (k *keeper) read(ctx context.Context, o transfer.ReadObject) (text []byte, err error) {
	_, err = k.client.Fetch(ctx, o, func(_ string, body io.Reader) (err error) {
		text, err = io.ReadAll(body)
		return err
	})
	return text, err
}

// goOn adds to what a context was told, a new one when it has no id, and returns its id.
func (k *keeper) goOn(id string, told []string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id == "" {
		id = fmt.Sprintf("context-%d", len(k.told)+1)
	}
	k.told[id] = append(k.told[id], told...)
	return id
}
