package objects

import (
	"context"
	"errors"
	"strings"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
)

const (
	drainEvery = 5 * time.Second
	drainLimit = 120 * time.Second
)

// Drain moves what an agent staged of its changelog into the store, and returns how many objects. One that the agent writes anew meanwhile
// is moved again by the next call. A changelog that is not staged has nothing to drain. What is no increment by its name, and what cannot be moved, is
// left on the agent, and the error names the first of it once all else is moved; a second call goes on.
func (m *Mover) Drain(ctx context.Context, e agent.Endpoint, c Changelog) (int, error) {
	if c.StagingURL == "" {
		return 0, nil
	}
	path, ours := strings.CutPrefix(c.StagingURL, strings.TrimRight(e.URL, "/"))
	if !ours || e.Card.Extension(card.Staging) == nil || !strings.HasPrefix(path, stagingRoot(e)+"/") {
		return 0, fault.New(fault.Invalid, "the changelog was not staged on %s", e)
	}
	root, err := m.o.Store.Key(c.ObjectURL)
	if err != nil {
		return 0, err
	}
	s := m.stagingAt(e, path)
	all, err := s.list(ctx)
	if err != nil {
		return 0, err
	}
	moved, most := 0, c.StagingMaxBytes
	if most <= 0 {
		most = maxIncrementBytes
	}
	var failed error
	for _, l := range all {
		name, ours := strings.CutPrefix(l.Path, root+"/")
		if !ours {
			continue
		}
		var err error
		switch {
		case !incrementName.MatchString(name):
			err = fault.New(fault.Unavailable, "%s staged %q, which is no name of an increment", e, name[:min(len(name), nameShown)])
		case l.Size > most:
			err = fault.New(fault.Unavailable, "the increment %s on %s has %d bytes, more than the %d it was granted", name, e, l.Size, most)
		default:
			err = fault.At(s.take(ctx, l.Path, arrival{url: c.ObjectURL + "/" + name, media: octets, size: -1, most: most}), "the increment %s", name)
		}
		switch {
		case err == nil:
			moved++
		case errors.Is(err, errGone): // somebody else drains it too
		case ctx.Err() != nil:
			return moved, err
		case failed == nil:
			failed = err
		}
	}
	return moved, failed
}

// nameShown is how much of a name that is none an error shows, in bytes.
const nameShown = 100

// KeepDrained drains a changelog every 5 seconds until a channel is closed, and then once more, for 120 seconds at most. What goes wrong is
// logged when its reason changes, and never ends it: the agent may come back. It returns when it has ended, and at once when ctx ends.
func (m *Mover) KeepDrained(ctx context.Context, e agent.Endpoint, c Changelog, until <-chan struct{}) {
	if c.StagingURL == "" {
		return
	}
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-tick.C:
			last = m.drain(ctx, e, c, last)
		case <-until:
			m.drain(ctx, e, c, last)
			return
		case <-ctx.Done():
			return
		}
	}
}

// LastDrain drains a changelog of an agent that is about to end, for 120 seconds at most. What goes wrong is logged.
func (m *Mover) LastDrain(ctx context.Context, e agent.Endpoint, c Changelog) { m.drain(ctx, e, c, "") }

// drain drains once, logs what goes wrong unless it went wrong for the same reason before, and returns the reason.
func (m *Mover) drain(ctx context.Context, e agent.Endpoint, c Changelog, before string) string {
	limited, stop := context.WithTimeout(ctx, drainLimit)
	defer stop()
	_, err := m.Drain(limited, e, c)
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if err.Error() != before {
		m.o.Log.Warn("the changelog of an agent could not be brought into the store", "agent", e.String(), "error", err)
	}
	return err.Error()
}
