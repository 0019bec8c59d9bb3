package sandboxtest

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"agentenv/sandbox"
)

// testCrowd makes many sandboxes at once, which must not meet on a port.
func testCrowd(t *testing.T, c Config) {
	p := c.New(t)
	machines := make([]sandbox.Machine, c.Crowd)
	var all sync.WaitGroup
	for i := range machines {
		all.Go(func() {
			s := sandbox.Spec{Name: "box", Mode: sandbox.Container, Image: c.Images[len(c.Images)-1].Ref, Port: port,
				Owner: sandbox.Owner{Instance: "conformance", Task: "crowd", Step: "s"}}
			m, err := p.Create(t.Context(), p.NewID(), s)
			if err != nil {
				t.Error(err)
				return
			}
			machines[i] = m
		})
	}
	all.Wait()
	machines = slices.DeleteFunc(machines, func(m sandbox.Machine) bool { return m == nil })
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
		defer stop()
		for _, m := range machines {
			all.Go(func() {
				if err := p.Terminate(ctx, m.Info().ID); err != nil {
					t.Error(err)
				}
				if found := ours(t, ctx, p, m.Info().ID); len(found) > 0 {
					t.Errorf("left behind: %+v", found)
				}
			})
		}
		all.Wait()
	})
	if c.Crowded != nil {
		c.Crowded(t)
	}
	seen := map[string]bool{}
	for _, m := range machines {
		u, err := url.Parse(m.Info().TunnelURLs["8000"])
		if err != nil || u.Hostname() == "" || u.Port() == "" {
			t.Fatalf("URLs %v", m.Info().TunnelURLs)
		}
		if seen[u.Host] {
			t.Errorf("two sandboxes are at %s", u.Host)
		}
		seen[u.Host] = true
	}
}
