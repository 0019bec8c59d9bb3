//go:build integration

package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestAliases names an agent of a shipped bundle in a bundle, in its place, and in a stored task that runs later.
func TestAliases(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	agent := func(id string) map[string]any {
		return map[string]any{"id": "agent", "type": "deploy_agent", "a2a_agent_id": id, "agent_name": "solver"}
	}
	check := map[string]any{"id": "reply", "type": "agent_prompt_response_verifier", "prompt_id": "p", "verifier_id": "reply",
		"criteria": []any{map[string]any{"type": "response_contains", "needles": []any{"Echo: hello"}}}}
	ask := prompt("ask", "hello")
	ask["prompt_id"] = "p"
	k.stored("later", steps{agent("echo"), ask})
	if r := k.run("task", "run", "--id", "later", "--output-dir", filepath.Join(k.Home, "early")); r.Code != 1 || !strings.Contains(r.Stderr+r.Stdout, "'echo' is an alias of @local/agentenv-framework/echo/echo") {
		t.Errorf("before it was written: %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := k.run("a2a-agent", "get", "--id", "echo"); r.Code != 1 || !strings.Contains(r.Stderr, "is not in the store yet") {
		t.Errorf("before it was written: %d, %s", r.Code, r.Stderr)
	}

	dir := k.bundle("talk", steps{agent("echo"), ask, check}, nil)
	said := k.ok("run", dir)
	for _, line := range []string{"echo → @local/agentenv-framework/echo/echo (the alias agentenv-framework's echo bundle gives it)\n", "\nagentenv-framework/echo:agents/echo: v1 (new)\n", "passed (reply: 1)"} {
		if !strings.Contains(said, line) {
			t.Errorf("it does not say %q:\n%s", line, said)
		}
	}
	if said = k.ok("run", dir, "--agent", "echo", "--dry-run"); !strings.Contains(said, "--agent echo: the solver deploys @local/agentenv-framework/echo/echo, in 1 of 1 task\n") ||
		!strings.Contains(said, "agentenv-framework/echo:agents/echo: v1, unchanged\n") {
		t.Errorf("%s", said)
	}
	if said = k.ok("task", "run", "--id", "later", "--output-dir", filepath.Join(k.Home, "out")); !strings.Contains(said, "Task completed!") {
		t.Errorf("%s", said)
	}
	if said = k.ok("a2a-agent", "get", "--id", "echo"); !strings.Contains(said, `"id": "@local/agentenv-framework/echo/echo"`) {
		t.Errorf("%s", said)
	}
	if said = k.ok("a2a-agent", "list"); !strings.Contains(said, "@local/agentenv-framework/echo/echo    echo     agentenv-framework ") || strings.Contains(said, "the store, v") {
		t.Errorf("%s", said)
	}
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
