package sandbox_test

import (
	"context"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/place"
	"agentenv/store/doc"
)

// named is a place that is its name alone.
type named struct {
	place.Place
	name string
}

func (n named) String() string { return n.name }

// beside is a machine with or without a host, whose containers are all there.
type beside struct{ host bool }

func (b beside) Info() sandbox.Info { return sandbox.Info{ID: "box-1"} }

func (b beside) Host() place.Place {
	if !b.host {
		return nil
	}
	return named{name: "host"}
}

func (b beside) Container(_ context.Context, name string) (place.Place, error) {
	return named{name: "container:" + name}, nil
}

func (b beside) ScopedName(name string) string { return name + "-scoped" }

func (b beside) Close() error { return nil }

// TestWhereAgentsWork has the record of an agent decide its place, whatever the live handle is.
func TestWhereAgentsWork(t *testing.T) {
	t.Parallel()
	agent := func(kv ...any) *doc.Object {
		return doc.Of(append([]any{"agent_name", "solver", "sandbox_id", "box-1", "sandbox_type", "local"}, kv...)...)
	}
	for name, c := range map[string]struct {
		record *doc.Object
		host   bool
		want   string
	}{
		"beside a host":            {agent("on_host", false, "installed_container", nil), true, "container:"},
		"the sandbox itself":       {agent("on_host", false, "installed_container", nil), false, "container:"},
		"recorded by older ones":   {agent(), true, "container:"},
		"on the host":              {agent("on_host", true, "installed_container", nil), true, "host"},
		"on a host there is not":   {agent("on_host", true), false, ""},
		"in another container":     {agent("on_host", false, "installed_container", "task-box-1"), true, "container:task-box-1"},
		"in another, of a sandbox": {agent("on_host", false, "installed_container", "task-box-1"), false, "container:task-box-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := sandbox.AgentRecord(c.record)
			if rec.Name != "solver" || rec.ID != "box-1" || rec.Type != "local" {
				t.Errorf("%+v", rec)
			}
			p, err := sandbox.PlaceOf(t.Context(), rec, beside{c.host}, "")
			if c.want == "" {
				if !fault.Is(err, fault.Conflict) {
					t.Errorf("%v, %v", p, err)
				}
				return
			}
			if err != nil || p.String() != c.want {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
}
