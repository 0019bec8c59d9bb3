package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/transfer"
	"agentenv/store/doc"
)

// keepers are agents of the kit that remember what they are told, each in a container of its own: they write their state and what changes in
// it to objects, and go on from both.
type keepers struct {
	c      *crew
	client *transfer.Client
	bare   bool                        // they write no changelog
	load   func(k *keeper) error       // what becomes of a load, nil = it is done
	apply  func(c a2a.Changelog) error // likewise of a replay
	skills bool                        // they take skills, as texts and as bundles

	mu  sync.Mutex
	all []*keeper // in the order of their containers
}

type keeper struct {
	*keepers
	folder string // of its staging store

	mu     sync.Mutex
	told   map[string][]string // by context
	log    *transfer.Namespace
	port   int
	writes int
	asked  []string // paths of its extensions
	learnt []string
}

// keeperConfig is what a keeper takes.
type keeperConfig struct{ a2a.BaseConfig }

// newKeepers gives a crew the agent "keeper", whose containers ask for a token.
func newKeepers(t *testing.T, c *crew) *keepers {
	t.Helper()
	ks := &keepers{c: c, client: transfer.NewClient(transfer.Options{})}
	t.Cleanup(ks.client.Close)
	c.images["agentenv.a2a.auth"] = "bearer"
	img, err := c.artifacts.PutRef(t.Context(), "keeper-image", artifact.RefImage{Ref: "registry.test/a@sha256:" + strings.Repeat("a", 64)})
	if err != nil {
		t.Fatal(err)
	}
	c.image = agent.ArtifactRef{ID: img.ID(), Version: img.Version()}
	c.put("keeper", nil)
	c.provider.Serve = func(env map[string]string) (http.Handler, func()) { return ks.serve(t, env["AGENTENV_A2A_TOKEN"]) }
	return ks
}

func (ks *keepers) serve(t *testing.T, token string) (http.Handler, func()) {
	k := &keeper{keepers: ks, folder: t.TempDir(), told: map[string][]string{}}
	state := a2a.Snapshot(k)
	if ks.bare {
		state = a2a.Snapshot(struct{ a2a.Snapshotter }{k})
	}
	extensions := []a2a.Extension{state}
	if ks.skills {
		extensions = append(extensions, a2a.SkillConfig(func(_ context.Context, s a2a.Skill) error { k.learn(s.Name, s.SkillMD); return nil }, k.install))
	}
	server, err := a2a.New(context.WithoutCancel(t.Context()), a2a.Agent{Identity: a2a.Identity{Name: "Keeper", Description: "remembers", Version: "1"}, Run: k.answer,
		Config: func() any { return &keeperConfig{BaseConfig: a2a.DefaultBase()} }, Extensions: extensions}, a2a.Settings{StagingDir: k.folder, Token: token})
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	ks.mu.Lock()
	ks.all = append(ks.all, k)
	ks.mu.Unlock()
	return k.recorded(server.Handler()), func() {
		ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
		defer stop()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// nth returns the keeper of a container.
func (ks *keepers) nth(n int) *keeper {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return ks.all[n]
}

func (k *keeper) recorded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/ext/") && !strings.HasPrefix(r.URL.Path, "/ext/staging") {
			k.mu.Lock()
			k.asked = append(k.asked, r.Method+" "+r.URL.Path)
			k.mu.Unlock()
		}
		h.ServeHTTP(w, r)
	})
}

func (k *keeper) answer(ctx context.Context, r *a2a.Request) (a2a.Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told[r.ContextID] = append(k.told[r.ContextID], r.Text())
	k.port = a2a.LocalPort(ctx)
	if err := k.write(ctx, r.Text()); err != nil {
		return a2a.Result{}, err
	}
	return a2a.Result{Parts: []a2a.Part{a2a.Text("I heard " + strings.Join(k.told[r.ContextID], ", "))}}, nil
}

// write adds an increment to the changelog, if it writes one.
func (k *keeper) write(ctx context.Context, text string) error {
	if k.log == nil {
		return nil
	}
	k.writes++
	return k.log.Put(ctx, fmt.Sprintf("%06d.txt", k.writes), transfer.Bytes([]byte(text)))
}

// note writes an increment while nobody prompts it.
func (k *keeper) note(t *testing.T, text string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.write(transfer.WithPort(t.Context(), k.port), text); err != nil {
		t.Fatal(err)
	}
}

// Save implements a2a.Snapshotter.
func (k *keeper) Save(ctx context.Context, id string, to a2a.SnapshotTargets) (out a2a.SnapshotWritten, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, err := json.Marshal(k.told[id])
	if err != nil {
		return out, err
	}
	if out.Trajectory, err = k.client.Upload(ctx, to.Trajectory, transfer.Bytes(text)); err != nil || to.Workspace == nil {
		return out, err
	}
	w, err := k.client.Upload(ctx, *to.Workspace, transfer.Bytes([]byte("work")))
	out.Workspace = &w
	return out, err
}

func (k *keeper) read(ctx context.Context, o transfer.ReadObject) (text []byte, err error) {
	_, err = k.client.Fetch(ctx, o, func(_ string, body io.Reader) (err error) {
		text, err = io.ReadAll(body)
		return err
	})
	return text, err
}

// Load implements a2a.Snapshotter.
func (k *keeper) Load(ctx context.Context, from a2a.SnapshotSources, id string) (string, error) {
	if k.load != nil {
		if err := k.load(k); err != nil {
			return "", err
		}
	}
	text, err := k.read(ctx, from.Trajectory)
	if err != nil {
		return "", err
	}
	var told []string
	if err := json.Unmarshal(text, &told); err != nil {
		return "", fault.Wrap(fault.Invalid, err, "the trajectory")
	}
	if id == "" {
		id = "of-its-own"
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told[id] = told
	return id, nil
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
	if k.apply != nil {
		if err := k.apply(c); err != nil {
			return "", err
		}
	}
	id := c.TargetContextID
	if id == "" {
		id = "of-its-own"
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range c.Increments {
		text, err := k.read(ctx, i.Object)
		if err != nil {
			return "", err
		}
		k.told[id] = append(k.told[id], string(text))
	}
	return id, nil
}

func (k *keeper) learn(name, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.learnt = append(k.learnt, name+": "+text)
}

func (k *keeper) install(ctx context.Context, b a2a.SkillBundle) error {
	var names []string
	for _, f := range b.Files {
		text, err := k.read(ctx, f.Object)
		if err != nil {
			return err
		}
		names = append(names, fmt.Sprintf("%s %d", f.Path, len(text)))
	}
	k.learn(b.Name, strings.Join(names, ", "))
	return nil
}

// ask prompts an agent in a conversation and returns the answer and the context after it.
func (c *crew) ask(at *doc.Object, name, conversation, text string) (string, *doc.Object) {
	c.t.Helper()
	run, err := c.run(c.t.Context(), at, `{"id":"ask-`+text+`","type":"prompt_agent","agent_name":"`+name+`","context_id":"`+conversation+`","prompt":"`+text+`","prompt_id":"`+text+`"}`)
	if err != nil {
		c.t.Fatal(err)
	}
	all := run.PromptResponses()
	return all[len(all)-1].Str("response"), run.Context()
}

// deployKeeper deploys a keeper by the steps and returns the context after it.
func (c *crew) deployKeeper(at *doc.Object, name, more string) *doc.Object {
	c.t.Helper()
	run, err := c.run(c.t.Context(), at, keeperStep(name, more))
	if err != nil {
		c.t.Fatal(err)
	}
	return run.Context()
}

func keeperStep(name, more string) string {
	return `{"id":"d-` + name + `","type":"deploy_agent","sandbox_type":"fake","a2a_agent_id":"keeper","agent_name":"` + name + `"` + more + `}`
}
