package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"agentenv/agent"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
	"agentenv/store/doc"
	"agentenv/store/document/sqlite"
)

const (
	agentCount = 200
	turnCount  = 20
)

// agents prompts many agents at once, each for several turns, and sets a turn beside a plain HTTP echo at the same concurrency. The agents
// and the plain server live in one process, whoever asks in another.
func (b *bench) agents(ctx context.Context) ([]row, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := exec.CommandContext(ctx, self, "-serve-agents")
	server.Stderr = os.Stderr
	server.Cancel = func() error { return server.Process.Signal(os.Interrupt) }
	server.WaitDelay = time.Minute
	out, err := server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		_ = server.Wait()
	}()
	addresses := filepath.Join(b.dir, "agents")
	lines := bufio.NewScanner(out)
	var list []string
	for len(list) < agentCount+1 && lines.Scan() {
		list = append(list, lines.Text())
	}
	if err := os.WriteFile(addresses, []byte(strings.Join(list, "\n")), 0o600); err != nil {
		return nil, err
	}
	took := map[string]measure{}
	var memory measure
	for _, what := range []string{"plain", "turns", "stored"} {
		u, err := command(ctx, nil, self, "-prompt-agents", addresses, "-prompt-how", what, "-prompt-store", filepath.Join(b.dir, "agents.db"))
		if err != nil {
			return nil, err
		}
		var s float64
		if _, err := fmt.Sscan(string(u.out), &s); err != nil {
			return nil, fmt.Errorf("%s: %q", what, u.out)
		}
		took[what] = seconds(s / (agentCount * turnCount))
		memory = measure{value: max(memory.value, u.rss), unit: "MiB"}
	}
	whole, err := b.promptTasks(ctx, list)
	if err != nil {
		return nil, err
	}
	return []row{
		whole,
		{work: "a turn with each of 200 agents at once", ours: took["turns"], limit: took["plain"], what: "(plain HTTP echo)", target: "3 times at most"},
		{work: "… what the store adds to it", ours: measure{value: took["stored"].value - took["turns"].value, unit: "s"}},
		{work: "200 agents, 20 turns each, memory", ours: memory, target: "under 500 MB"},
	}, nil
}

// promptTasks runs tasks that prompt agents, as both programs run them.
func (b *bench) promptTasks(ctx context.Context, agents []string) (row, error) {
	tasks := map[string]any{}
	for i := range 4 {
		steps := []step{{"id": "agent", "type": "deploy_human_agent", "agent_name": "echo", "a2a_url": agents[i]}}
		for n := range 5 {
			steps = append(steps, step{"id": fmt.Sprint("turn", n), "type": "prompt_agent", "agent_name": "echo", "prompt": fmt.Sprint("turn ", n), "depends_on": []any{steps[n]["id"]}})
		}
		tasks[fmt.Sprint("t", i)] = steps
	}
	dir, err := b.bundle("prompts", tasks)
	if err != nil {
		return row{}, err
	}
	ours, err := b.ourRun(ctx, 3, dir, "local")
	if err != nil {
		return row{}, err
	}
	return row{work: "4 tasks at once, 5 prompts each, whole", ours: wall(ours), ref: b.refRow(ctx, 1, dir)}, nil
}

// serveAgents serves the agents and a plain echo until ctx ends, and prints their addresses, one a line, the plain one last.
func serveAgents(ctx context.Context) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	for range agentCount {
		s, err := echo.New(ctx, a2a.Settings{StagingMaxBytes: -1})
		if err != nil {
			return err
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		serving.Go(func() { _ = s.Serve(ctx, l, time.Second) })
		fmt.Printf("http://%s\n", l.Addr())
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	h := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })}
	serving.Go(func() { _ = h.Serve(l) })
	fmt.Printf("http://%s\n", l.Addr())
	<-ctx.Done()
	return h.Close()
}

// promptAgents has every agent answer its turns, all agents at once, and prints the seconds it took. how: plain asks the plain server
// instead, stored also keeps the conversations.
func promptAgents(ctx context.Context, addresses, how, store string) error {
	text, err := os.ReadFile(addresses)
	if err != nil {
		return err
	}
	list := strings.Fields(string(text))
	if len(list) != agentCount+1 {
		return fmt.Errorf("%d addresses", len(list))
	}
	client := agent.NewClient(agent.Options{})
	defer client.Close()
	ends := make([]agent.Endpoint, agentCount)
	for i := range ends {
		ends[i].URL = list[i]
		if ends[i].Card, err = client.Card(ctx, ends[i]); err != nil {
			return err
		}
	}
	var kept *agent.Conversations
	if how == "stored" {
		docs, err := sqlite.New(sqlite.Options{Path: store})
		if err != nil {
			return err
		}
		defer docs.Close()
		kept = agent.NewConversations(docs, time.Now)
	}
	plain := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: agentCount}}
	defer plain.CloseIdleConnections()
	failed := make([]error, agentCount)
	var all sync.WaitGroup
	start := time.Now()
	for i, e := range ends {
		all.Go(func() {
			for n := 0; n < turnCount && failed[i] == nil; n++ {
				said := fmt.Sprintf("turn %d of %d", n, i)
				switch how {
				case "plain":
					failed[i] = plainTurn(ctx, plain, list[agentCount], said)
				case "stored":
					failed[i] = storedTurn(ctx, client, kept, e, fmt.Sprint("c", i), said, n)
				default:
					_, failed[i] = turn(ctx, client, e, fmt.Sprint("c", i), said)
				}
			}
		})
	}
	all.Wait()
	fmt.Println(time.Since(start).Seconds())
	return errors.Join(failed...)
}

func plainTurn(ctx context.Context, c *http.Client, url, said string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(said))
	if err != nil {
		return err
	}
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Equal(b, []byte(said)) {
		err = fmt.Errorf("the plain server answered %q", b)
	}
	return err
}

func turn(ctx context.Context, c *agent.Client, e agent.Endpoint, conversation, said string) (*agent.Reply, error) {
	r, err := c.Send(ctx, e, agent.Turn{ContextID: conversation, Parts: []*doc.Object{doc.Of("kind", "text", "text", said)}, Timeout: time.Minute})
	if err == nil && r.Text != "Echo: "+said {
		err = fmt.Errorf("an agent answered %q", r.Text)
	}
	return r, err
}

func storedTurn(ctx context.Context, c *agent.Client, kept *agent.Conversations, e agent.Endpoint, conversation, said string, n int) error {
	if n == 0 {
		if err := kept.Open(ctx, agent.Conversation{ID: conversation, Source: "bench", Target: "echo"}); err != nil {
			return err
		}
	}
	if err := kept.AddMessage(ctx, conversation, "user", []*doc.Object{doc.Of("kind", "text", "text", said)}, fmt.Sprint("m", n)); err != nil {
		return err
	}
	r, err := turn(ctx, c, e, conversation, said)
	if err != nil {
		return err
	}
	return kept.Complete(ctx, conversation, r.Parts)
}
