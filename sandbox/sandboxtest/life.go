package sandboxtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
)

const port = 8000

func deploy(t *testing.T, c Config, mode sandbox.Mode, image string) sandbox.Machine {
	t.Helper()
	p := c.New(t)
	id := p.NewID()
	s := sandbox.Spec{Name: "box", Mode: mode, Image: image, Owner: sandbox.Owner{Instance: "conformance", Task: "t", Step: "s"}}
	if mode == sandbox.Container {
		s.Port, s.Env = port, map[string]string{"GREETING": "it's \"here\"\nand there"}
	}
	if err := p.Prepare(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	m, err := p.Create(t.Context(), id, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
		defer stop()
		if err := p.Terminate(ctx, m.Info().ID); err != nil {
			t.Errorf("terminate: %v", err)
		}
		if err := p.Terminate(ctx, m.Info().ID); err != nil {
			t.Errorf("terminate again: %v", err)
		}
		if _, err := p.Attach(ctx, m.Info().ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("attach after terminate: %v, want a not-found error", err)
		}
		if found := ours(t, ctx, p, m.Info().ID); len(found) > 0 {
			t.Errorf("left behind: %+v", found)
		}
	})
	return m
}

func ours(t *testing.T, ctx context.Context, p sandbox.Provider, id string) []sandbox.Found {
	t.Helper()
	list, err := p.List(ctx)
	if err != nil {
		t.Errorf("list: %v", err)
	}
	return slices.DeleteFunc(list, func(f sandbox.Found) bool { return f.SandboxID != id })
}

func testLife(t *testing.T, c Config) {
	for _, mode := range modes(c) {
		t.Run(string(mode), func(t *testing.T) {
			image := ""
			if mode == sandbox.Container {
				image = c.Images[len(c.Images)-1].Ref
			}
			m := deploy(t, c, mode, image)
			info := m.Info()
			if info.Mode != mode {
				t.Errorf("mode %q, want %q", info.Mode, mode)
			}
			if mode == sandbox.Container && info.TunnelURLs["8000"] == "" {
				t.Errorf("no URL for port %d: %v", port, info.TunnelURLs)
			}
			p := c.New(t)
			if len(ours(t, t.Context(), p, info.ID)) == 0 {
				t.Error("List does not know it")
			}
			again, err := p.Attach(t.Context(), info.ID)
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range info.TunnelURLs {
				if got := again.Info().TunnelURLs[k]; got != v {
					t.Errorf("URL of port %s is %q when attached, was %q", k, got, v)
				}
			}
			if _, err := sandbox.PlaceOf(t.Context(), sandbox.Record{Name: "box", ID: info.ID, Mode: mode}, again, ""); err != nil {
				t.Errorf("place of the attached handle: %v", err)
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func modes(c Config) []sandbox.Mode {
	var out []sandbox.Mode
	if c.VM {
		out = append(out, sandbox.VM)
	}
	if len(c.Images) > 0 {
		out = append(out, sandbox.Container)
	}
	return out
}

func testRefusals(t *testing.T, c Config) {
	p := c.New(t)
	cases := map[string]sandbox.Spec{
		"unknown mode": {Mode: "VM"},
		"no image":     {Mode: sandbox.Container, Port: port},
		"no port":      {Mode: sandbox.Container, Image: "x"},
		"bad port":     {Mode: sandbox.Container, Image: "x", Port: 70000},
	}
	if !p.Capabilities().Allowlist {
		cases["policy"] = sandbox.Spec{Mode: modes(c)[0], Image: "x", Port: port, Policy: &sandbox.NetworkPolicy{Mode: "allowlist"}}
	}
	if !c.VM {
		cases["vm"] = sandbox.Spec{Mode: sandbox.VM}
	}
	for name, s := range cases {
		t.Run(name, func(t *testing.T) {
			id := p.NewID()
			if _, err := p.Create(t.Context(), id, s); !fault.Is(err, fault.Invalid, fault.Unsupported) {
				t.Errorf("error %v, want an invalid or unsupported one", err)
			}
			if found := ours(t, t.Context(), p, id); len(found) > 0 {
				t.Errorf("left behind: %+v", found)
			}
		})
	}
	if len(c.Images) > 0 {
		t.Run("cancelled creation", func(t *testing.T) {
			for _, after := range []time.Duration{0, 5 * time.Millisecond, 40 * time.Millisecond, 120 * time.Millisecond} {
				id := p.NewID()
				ctx, stop := context.WithTimeout(t.Context(), after)
				_, err := p.Create(ctx, id, sandbox.Spec{Mode: sandbox.Container, Image: c.Images[0].Ref, Port: port})
				stop()
				if err == nil { // it was faster
					if err := p.Terminate(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				} else if !fault.Is(err, fault.Timeout, fault.Canceled) {
					t.Errorf("after %s: %v, want a timeout", after, err)
				}
				if found := ours(t, t.Context(), p, id); len(found) > 0 {
					t.Errorf("after %s: left behind: %+v", after, found)
				}
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		id := p.NewID()
		if _, err := p.Attach(t.Context(), id); !fault.Is(err, fault.NotFound) {
			t.Errorf("attach: %v, want a not-found error", err)
		}
		if err := p.Terminate(t.Context(), id); err != nil {
			t.Errorf("terminate: %v", err)
		}
	})
}
