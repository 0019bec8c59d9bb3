package deploy_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/agent/deploy/deploytest"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
)

// box deploys a sandbox of mode vm that exposes the agents' port.
func (r *rig) box() deploy.Site {
	r.t.Helper()
	m, err := r.manager.Deploy(r.t.Context(), "", sandbox.Spec{Name: "box", Mode: sandbox.VM, ExposedPorts: []int{deploy.Port}, Owner: sandbox.Owner{Instance: "run"}}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return deploy.Site{Record: sandbox.Record{Name: "box", ID: m.Info().ID, Type: deploytest.Name, Mode: sandbox.VM}}
}

func TestOnASandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t, model{}, map[string]string{deploy.BearerLabel: "bearer"})
	r.trust = []byte("certificates")
	site := r.box()
	req := r.request(nil, modelFree())
	req.On = &site
	for range 2 {
		a, err := r.Deploy(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		specs := r.provider.Specs()
		spec := specs[len(specs)-1]
		if a.Info.ID != site.ID || a.Endpoint.Sandbox != site.ID || spec.Env["AGENTENV_A2A_TOKEN"] != a.Endpoint.Token || len(spec.Files) != 1 || !spec.ServesItsCommand {
			t.Errorf("%+v with %+v", a, spec)
		}
		record := doc.Of("agent_name", "solver", "a2a_url", a.Endpoint.URL, "sandbox_id", a.Info.ID, "sandbox_type", deploytest.Name, "a2a_card", a.Card)
		found, err := r.Endpoint(record)
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := r.client.Send(t.Context(), found, agent.Turn{Parts: []*doc.Object{agent.Text("hi")}}); err != nil || reply.LastText != "Echo: hi" {
			t.Errorf("%+v, %v", reply, err)
		}
		if _, err := r.Deploy(t.Context(), req); !fault.Is(err, fault.Exists) || !strings.Contains(err.Error(), `"solver" runs on it`) {
			t.Errorf("a second agent: %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := r.Watch(ctx, record); err != nil {
			t.Error(err)
		}
		r.provider.Kill(site.ID)
		if err := r.Watch(t.Context(), record); !fault.Is(err, fault.Internal) {
			t.Errorf("of one that died: %v", err)
		}
		for range 2 {
			if err := r.Close(t.Context(), a); err != nil {
				t.Error(err)
			}
		}
		if err := r.Watch(t.Context(), record); !fault.Is(err, fault.Unavailable) {
			t.Errorf("of one that was taken away: %v", err)
		}
		if live := r.provider.Live(); !slices.Equal(live, []string{site.ID}) {
			t.Errorf("the sandboxes are %v", live)
		}
	}
}

func TestNotOnASandbox(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(r *rig, q *deploy.Request)
		kind   fault.Kind
		wants  string
		starts int
	}{
		"a policy":           {func(_ *rig, q *deploy.Request) { q.Policy = &sandbox.NetworkPolicy{Mode: sandbox.Allowlist} }, fault.Invalid, "give it to its deploy_sandbox", 0},
		"a container":        {func(_ *rig, q *deploy.Request) { q.On.Mode = sandbox.Container }, fault.Invalid, "of the mode container", 0},
		"a sandbox gone":     {func(_ *rig, q *deploy.Request) { q.On.ID = "fake-0" }, fault.NotFound, "cannot be reached", 0},
		"ended at once":      {func(r *rig, _ *deploy.Request) { r.provider.Serve = nothing; r.provider.Output = "no luck" }, fault.Unavailable, "no luck", 1},
		"it serves no agent": {func(r *rig, _ *deploy.Request) { r.provider.Serve = ending(r) }, fault.Unavailable, "has ended", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, model{}, nil)
			site := r.box()
			req, id := r.request(nil, modelFree()), site.ID
			req.On = &site
			c.change(r, &req)
			_, err := r.Deploy(t.Context(), req)
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.wants) {
				t.Error(err)
			}
			if rows, err := r.manager.Of(t.Context(), "run"); err != nil || len(rows) != 1 || len(r.provider.Specs()) != 1+c.starts || !slices.Equal(r.provider.Live(), []string{id}) {
				t.Errorf("left %v, %v, after %d starts", rows, err, len(r.provider.Specs())-1)
			}
		})
	}
}

// TestOwnDocker has the agent be told where its own engine is, whatever its variables say; what that is made of can be configured.
func TestOwnDocker(t *testing.T) {
	t.Parallel()
	r := newRig(t, model{}, nil)
	site := r.box()
	req := r.request(nil, modelFree())
	req.Docker, req.Env = true, map[string]string{"DOCKER_HOST": "unix:///var/run/docker.sock"}
	for _, on := range []*deploy.Site{nil, &site} {
		req.On = on
		if _, err := r.Deploy(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		specs := r.provider.Specs()
		if spec := specs[len(specs)-1]; spec.Docker != deploy.DockerImage || spec.Env["DOCKER_HOST"] != "tcp://agent-dind:2375" {
			t.Errorf("%+v", spec)
		}
	}
}

func nothing(map[string]string) (http.Handler, func()) { return nil, nil }

// ending is an agent that ends when it is asked for its card.
func ending(r *rig) func(map[string]string) (http.Handler, func()) {
	return func(map[string]string) (http.Handler, func()) {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.NotFound(w, nil)
			for _, id := range r.provider.Live() {
				go r.provider.Kill(id)
			}
		}), nil
	}
}
