//go:build integration

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/test/kit"
	"agentenv/test/modelserver/scripted"
)

// TestTheShippedEcho needs no image of anybody and no model.
func TestTheShippedEcho(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			record := k.passes("echo", "--sandbox", provider)
			if got := record.str("context", "prompt_responses", 0, "response"); got != "Echo: hello" {
				t.Error(got)
			}
			same(t, k.collected(record.str("context", "metadata", "file_artifact_universe", "id")), kit.Files{"letter.txt": "Dear echo,\nplease keep this.\n"})
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// scriptedModel has a user's agents ask a model that answers by a script. It is served until the test ends.
func scriptedModel(t *testing.T, k *user, key, script string) *scripted.Server {
	t.Helper()
	parsed, err := scripted.Parse(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	model, err := scripted.New(parsed, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "0.0.0.0:0") // containers reach it by the bridge's address
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: model, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Shutdown(context.Background())
		<-served
	})
	config := fmt.Sprintf("[model]\nbase_url = \"http://127.0.0.1:%d\"\napi_key = \"env:THE_KEY\"\n", l.Addr().(*net.TCPAddr).Port)
	kit.Write(t, k.Home, kit.Files{"agent-env.toml": config})
	k.Env = append(k.Env, "THE_KEY="+key, "AGENT_ENV_CONFIG="+filepath.Join(k.Home, "agent-env.toml"))
	return model
}

// TestTheShippedModel runs the bundle with a model that answers by a script, on both wires' common ground.
func TestTheShippedModel(t *testing.T) {
	t.Parallel()
	pythonSlim(t)
	const key = "sk-of-the-scripted-model"
	k := newUser(t)
	model := scriptedModel(t, k, key, `{"turns":[
		{"text":"I write it.","tools":[{"name":"bash","arguments":{"command":"printf '%s\\n' 2 3 5 7 11 13 17 19 23 29 > /work/primes.txt"}}]},
		{"text":"Their sum is 129."}]}`)
	record := k.passes("model", "--model", "scripted-1")
	response := record.at("context", "prompt_responses", 0)
	if response.str("response") != "Their sum is 129." || response.num("tool_call_count") != 1 || response.str("model") != "scripted-1" {
		t.Errorf("%s", response)
	}
	asked := model.Requests()
	if len(asked) != 2 || asked[0].Body["model"] != "scripted-1" {
		t.Errorf("%d requests, %v", len(asked), asked[0].Body["model"])
	}
	for name, text := range kit.Read(t, k.State) {
		if strings.Contains(text, key) {
			t.Errorf("the key is in %s", name)
		}
	}
}

// TestAgentsTalkToEachOther in containers of their own: one hands what it is told on to its peer, by the tools that its model gets for it.
func TestAgentsTalkToEachOther(t *testing.T) {
	t.Parallel()
	pythonSlim(t)
	k := newUser(t)
	scriptedModel(t, k, "sk-of-the-scripted-model", `{"turns":[
		{"when":"^hand on","tools":[{"name":"peer_send_message","arguments":{"name":"expert","prompt":"what is six times seven?"}}]},
		{"when":"^what is six","text":"It is 42."},
		{"when":"It is 42","text":"The expert says: 42."},
		{"text":"I do not know."}]}`)
	type step = map[string]any
	deploy := func(name string) step {
		return step{"id": name, "type": "deploy_agent", "a2a_agent_id": "model", "agent_name": name, "env_vars": step{"AGENTENV_MODEL": "scripted-1"}}
	}
	dir := k.bundle("peers", steps{deploy("boss"), deploy("expert"),
		{"id": "tell", "type": "peer_agents", "depends_on": []string{"boss", "expert"}, "peerings": []step{{"source_agent_name": "boss", "peer_agent_names": []string{"expert"}}}},
		{"id": "ask", "type": "prompt_agent", "agent_name": "boss", "prompt": "hand on", "prompt_id": "ask", "depends_on": []string{"tell"}},
		{"id": "right", "type": "agent_prompt_response_verifier", "verifier_id": "right", "prompt_id": "ask", "depends_on": []string{"ask"},
			"criteria": []step{{"type": "response_regex_present", "pattern": "^The expert says: 42\\.$"}}}}, nil)
	k.passes(dir)
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestTheModelGoesOn in another container, from a snapshot of the first one's conversation and files.
func TestTheModelGoesOn(t *testing.T) {
	t.Parallel()
	pythonSlim(t)
	k := newUser(t)
	model := scriptedModel(t, k, "sk-of-the-scripted-model", `{"turns":[
		{"when":"^note","tools":[{"name":"bash","arguments":{"command":"echo remembered > /work/note"}}]},
		{"when":"^go on","text":"As noted."},
		{"text":"Noted."}]}`)
	type step = map[string]any
	deploy := func(name string, more step) step {
		s := step{"id": name, "type": "deploy_agent", "a2a_agent_id": "model", "agent_name": name, "env_vars": step{"AGENTENV_MODEL": "scripted-1"}}
		for k, v := range more {
			s[k] = v
		}
		return s
	}
	dir := k.bundle("goeson", steps{deploy("first", nil),
		{"id": "note", "type": "prompt_agent", "agent_name": "first", "prompt": "note it", "prompt_id": "note", "depends_on": []string{"first"}, "snapshot_config": step{"at_end": true}},
		{"id": "keep", "type": "snapshot_agent_state", "artifact_id": "kept-talk", "prompt_id": "note", "agent_name": "first", "depends_on": []string{"note"}},
		deploy("second", step{"depends_on": []string{"keep"}, "agent_snapshot_files_artifact_id": "kept-talk", "agent_snapshot_target_context_id": "talk"}),
		{"id": "goon", "type": "prompt_agent", "agent_name": "second", "prompt": "go on", "prompt_id": "goon", "context_id": "talk", "depends_on": []string{"second"}},
		{"id": "there", "type": "verify_sandbox", "agent_name": "second", "verifier_id": "there", "depends_on": []string{"goon"},
			"criteria": []step{{"type": "probe_file_contains", "paths": []string{"/work/note"}, "expected": "^remembered"}}}}, nil)
	record := k.passes(dir)
	rows := record.at("context", "metadata", "agent_snapshots")
	if rows.len() != 2 || rows.str(0, "capture_status") != "ok" || !strings.HasSuffix(rows.str(1, "id"), "/kept-talk") {
		t.Errorf("%s", rows)
	}
	last, _ := json.Marshal(model.Requests()[len(model.Requests())-1].Body["messages"])
	if !strings.Contains(string(last), "note it") || !strings.Contains(string(last), "go on") {
		t.Errorf("the conversation does not go on: %s", last)
	}
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
