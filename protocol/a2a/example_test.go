package a2a_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"agentenv/protocol/a2a"
)

// GreeterConfig is what this agent can be told; the json tags are the names on the wire.
type GreeterConfig struct {
	a2a.BaseConfig
	Greeting string `json:"greeting"`
	APIKey   string `json:"api_key" agent:"writeonly"`
}

// Greeter is an agent that greets, and remembers in each talk how often it did.
func Greeter() a2a.Agent {
	return a2a.Agent{
		Identity:   a2a.Identity{Name: "Greeter", Description: "Greets whoever writes", Version: "1.0.0"},
		Config:     func() any { return &GreeterConfig{BaseConfig: a2a.DefaultBase(), Greeting: "Hello"} },
		Extensions: []a2a.Extension{a2a.MCPConfig(), a2a.Trajectory(true)},
		Stream:     greet,
	}
}

func greet(ctx context.Context, r *a2a.Request, emit a2a.Emit) (a2a.Result, error) {
	if r.Text() == "" {
		return a2a.Fail("greeter.no_text", "the message has no text"), nil
	}
	if err := r.Trajectory.SetFormat("greeter/v1"); err != nil {
		return a2a.Result{}, err
	}
	if err := emit(a2a.Progress{Parts: []a2a.Part{a2a.Text("thinking of a greeting")}}); err != nil {
		return a2a.Result{}, err // the task was canceled
	}
	times := r.SessionRef + "I"
	answer := fmt.Sprintf("%s, %s (%s)", r.Config.(*GreeterConfig).Greeting, r.Text(), times)
	if err := r.Trajectory.Append(map[string]any{"type": "greeting", "text": answer}); err != nil {
		return a2a.Result{}, err
	}
	return a2a.Result{Parts: []a2a.Part{a2a.Text(answer)}, SessionRef: times}, ctx.Err()
}

// An agent is a value; Main serves it as A2A_HOST, A2A_PORT and AGENTENV_A2A_TOKEN say:
//
//	settings, err := a2a.FromEnv(os.Getenv)
//	…
//	err = a2a.Main(ctx, Greeter(), settings)
//
// Here it is served by a test server.
func Example() {
	ctx := context.Background()
	server, err := a2a.New(ctx, Greeter(), a2a.Settings{StagingMaxBytes: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close(ctx) }()
	h := httptest.NewServer(server.Handler())
	defer h.Close()
	post := func(path, body string) string {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+path, strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		res, err := h.Client().Do(r)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		text, _ := io.ReadAll(res.Body)
		return string(text)
	}
	fmt.Println(post("/ext/agent-config", `{"greeting":"Welcome"}`))
	answer := post("/a2a", `{"jsonrpc":"2.0","id":"1","method":"message/send","params":{"message":{
		"messageId":"m1","role":"user","parts":[{"kind":"text","text":"you"}]}}}`)
	fmt.Println(strings.Contains(answer, "Welcome, you (I)"))
	// Output:
	// {"status":"updated"}
	// true
}
