package cli

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/agent/objects"
	"agentenv/artifact"
	"agentenv/protocol/a2a"
	"agentenv/store/doc"
	"agentenv/store/object/localfs"
)

// learner is an agent that says which skills it was given.
type learner struct {
	mu  sync.Mutex
	got []string
}

func (l *learner) learn(what string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, what)
	return nil
}

func (l *learner) learnt() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.got, ", ")
}

// serve serves the agent and returns its URL and card.
func (l *learner) serve(t *testing.T) (string, *doc.Object) {
	t.Helper()
	server, err := a2a.New(context.WithoutCancel(t.Context()), a2a.Agent{Identity: a2a.Identity{Name: "Learner", Description: "learns", Version: "1"},
		Run: func(context.Context, *a2a.Request) (a2a.Result, error) { return a2a.Result{}, nil },
		Extensions: []a2a.Extension{a2a.SkillConfig(func(_ context.Context, s a2a.Skill) error { return l.learn(s.Name) }, func(_ context.Context, b a2a.SkillBundle) error {
			what := b.Name + ":"
			for _, f := range b.Files {
				what += " " + f.Path
			}
			return l.learn(what)
		})}}, a2a.Settings{StagingDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		h.Close()
		ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
		defer stop()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	client := agent.NewClient(agent.Options{})
	defer client.Close()
	found, err := client.AwaitCard(t.Context(), agent.Endpoint{URL: h.URL}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	card, err := doc.From(found.Document)
	if err != nil {
		t.Fatal(err)
	}
	return h.URL, card.(*doc.Object)
}

// TestAddSkill gives a deployed agent a skill from each of its sources.
func TestAddSkill(t *testing.T) {
	t.Parallel()
	const text = "---\nname: NAME\ndescription: d\n---\n# Body\n"
	b := newBench(t, map[string]string{"small/SKILL.md": strings.ReplaceAll(text, "NAME", "small"), "big/SKILL.md": strings.ReplaceAll(text, "NAME", "big"), "big/a.txt": "a",
		"file/SKILL.md": strings.ReplaceAll(text, "NAME", "file"), "bad/SKILL.md": "no skill"})
	l := &learner{}
	url, card := l.serve(t)
	open, folder := b.app.Open, ""
	b.app.Open = func(ctx context.Context, log *slog.Logger) (*Services, error) {
		s, err := open(ctx, log)
		if err != nil || folder == "" {
			return s, err
		}
		store, err := localfs.New(folder)
		if err != nil {
			return nil, err
		}
		client := agent.NewClient(agent.Options{})
		s.Agents = Agents{Instances: agent.NewInstances(s.Documents), Client: client, Deployer: deploy.New(deploy.Options{}),
			Mover: objects.New(objects.Options{Client: client, Store: store, Near: func(kind string) bool { return kind == "here" }})}
		s.Closers = append(s.Closers, store.Close, func() error { s.Agents.Mover.Close(); client.Close(); return nil })
		return s, nil
	}
	at := map[string]string{}
	for _, id := range []string{"small", "big"} {
		if code, _, errs := b.run("artifact", "skill", "put", "--id", id, "--skill-dir", "@/"+id); code != 0 {
			t.Fatal(errs)
		}
		s, err := open(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		k, err := artifact.GetAs[*artifact.Skill](t.Context(), s.Artifacts, artifact.Ref{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		at[id] = k.URL
	}
	folder, _, _ = strings.Cut(strings.TrimPrefix(at["big"], "file://"), "/artifacts/")
	s, err := b.app.Open(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for id, c := range map[string]*doc.Object{"learner-1": card, "plain-1": doc.Of("name", "plain")} {
		if err := s.Agents.Instances.Put(t.Context(), agent.Instance{InstanceID: id, AgentID: id, AgentVersion: 1, URL: url, SandboxID: "s", SandboxType: "here", Card: c, CreatedAt: time.Now(), ExpiresAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b.prints("a2a-agent add-skill --instance-id learner-1 --skill-md-path @/file/SKILL.md", "Added skill file to learner-1\n")
	b.prints("a2a-agent add-skill --instance-id learner-1 --skill-artifact-id small", "Added skill small to learner-1\n")
	b.prints("a2a-agent add-skill --instance-id learner-1 --skill-object-url "+at["big"], "Added skill big to learner-1\n")
	if got := l.learnt(); got != "file, small, big: SKILL.md a.txt" {
		t.Errorf("it learnt %s", got)
	}
	for line, says := range map[string]string{
		"learner-1 --skill-object-url " + at["big"]:                              "409",
		"learner-1 --skill-object-url " + at["big"] + "/none":                    "SKILL.md",
		"learner-1 --skill-object-url s3://elsewhere/x":                          "s3://elsewhere/x",
		"learner-1 --skill-md-path @/bad/SKILL.md":                               "frontmatter",
		"plain-1 --skill-object-url " + at["big"]:                                "offers no skill-config",
		"plain-1 --skill-object-url " + at["big"] + " --skill-artifact-id small": "exactly one",
	} {
		code, _, errs := b.run(strings.Fields("a2a-agent add-skill --instance-id " + line)...)
		if code == 0 || !strings.Contains(errs, says) {
			t.Errorf("%s: %d %s", line, code, errs)
		}
	}
}
