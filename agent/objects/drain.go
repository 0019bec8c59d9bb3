package objects

import (
	"context"
	"strings"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/protocol/transfer"
)

const (
	drainEvery = 5 * time.Second
	drainLimit = 120 * time.Second // of the last one
)

// Drain moves what an agent staged of its changelog into the store, and returns how many objects. One that the agent writes anew meanwhile
// is moved again by the next call. A changelog that is not staged has nothing to drain. An error leaves what was not moved on the agent; a
// second call goes on.
func (m *Mover) Drain(ctx context.Context, e agent.Endpoint, c Changelog) (int, error) {
	if c.StagingURL == "" {
		return 0, nil
	}
	path, ours := strings.CutPrefix(c.StagingURL, strings.TrimRight(e.URL, "/"))
	if !ours || !strings.HasPrefix(path, "/") || e.Card.Extension(card.Staging) == nil {
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
	moved := 0
	for _, l := range all {
		name, ours := strings.CutPrefix(l.Path, root+"/")
		if !ours || !transfer.Relative(name) {
			continue
		}
		if l.Size > c.StagingMaxBytes {
			return moved, fault.New(fault.Unavailable, "the increment %s on %s has %d bytes, more than the %d it was granted", name, e, l.Size, c.StagingMaxBytes)
		}
		if err := s.take(ctx, l.Path, arrival{url: c.ObjectURL + "/" + name, media: octets, size: -1, most: max(c.StagingMaxBytes, 1)}); err != nil {
			return moved, fault.At(err, "the increment %s", name)
		}
		moved++
	}
	return moved, nil
}

// KeepDrained drains a changelog every 5 seconds until ctx ends, and then once more, for 120 seconds at most. What goes wrong is logged when
// its reason changes, and never ends it: the agent may come back. It returns when it has ended.
func (m *Mover) KeepDrained(ctx context.Context, e agent.Endpoint, c Changelog) {
	if c.StagingURL == "" {
		return
	}
	last := ""
	drain := func(ctx context.Context) {
		_, err := m.Drain(ctx, e, c)
		why := ""
		if err != nil {
			why = err.Error()
		}
		if why != "" && why != last {
			m.o.Log.Warn("the changelog of an agent could not be brought into the store", "error", err)
		}
		last = why
	}
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			drain(ctx)
		case <-ctx.Done():
			end, stop := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
			defer stop()
			drain(end)
			return
		}
	}
}
