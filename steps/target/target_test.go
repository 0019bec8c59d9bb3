package target_test

import (
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/steps/target"
	"agentenv/store/doc"
	"agentenv/task"
)

func TestOf(t *testing.T) {
	t.Parallel()
	r := task.NewRun("s", "load_artifact", nil, nil, nil)
	if err := r.AddSandbox(task.Sandbox{Name: "box", ID: "local-1", Mode: "container", Type: "local"}); err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]any{"solver": "docker-2", "human": nil} {
		if err := r.AddAgent(doc.Of("agent_name", name, "sandbox_id", id, "sandbox_type", "docker")); err != nil {
			t.Fatal(err)
		}
	}
	box := sandbox.Record{Name: "box", ID: "local-1", Type: "local", Mode: sandbox.Container}
	for _, c := range []struct {
		sandbox, agent string
		want           sandbox.Record
		fails          string
	}{
		{"box", "", box, ""},
		{"box", "solver", box, ""},
		{"", "solver", sandbox.Record{Name: "solver", ID: "docker-2", Type: "docker", Mode: sandbox.Container}, ""},
		{"", "human", sandbox.Record{}, "runs in no sandbox"},
		{"", "nobody", sandbox.Record{}, `no agent named "nobody"; deployed before this step: `},
		{"cellar", "solver", sandbox.Record{}, `no sandbox named "cellar"; deployed before this step: box`},
	} {
		rec, err := target.Of(r, c.sandbox, c.agent)
		switch {
		case c.fails != "":
			if !fault.Is(err, fault.Invalid) || fault.ClassOf(err) != "RuntimeError" || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%q %q: %v", c.sandbox, c.agent, err)
			}
		case err != nil || rec != c.want:
			t.Errorf("%q %q: %+v, %v", c.sandbox, c.agent, rec, err)
		}
	}
}
