package files

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox/place"
	"agentenv/task"
)

// sizesNow is a place that knows sizes alone.
type sizesNow struct {
	place.Place
	sizes map[string]int64
	walks int
	stats int
}

func (s *sizesNow) Stat(ctx context.Context, p string, _ bool) (place.Entry, error) {
	s.stats++
	n, there := s.sizes[p]
	if !there {
		return place.Entry{}, fault.New(fault.NotFound, "%s: no such file", p)
	}
	return place.Entry{Kind: place.File, Size: n}, ctx.Err()
}

func (s *sizesNow) Walk(ctx context.Context, root string, _ bool) iter.Seq2[place.Entry, error] {
	return func(yield func(place.Entry, error) bool) {
		s.walks++
		for at, n := range s.sizes {
			if name, ok := strings.CutPrefix(at, root+"/"); ok && !yield(place.Entry{Name: name, Kind: place.File, Size: n}, ctx.Err()) {
				return
			}
		}
	}
}

func TestRecheck(t *testing.T) {
	now := &sizesNow{sizes: map[string]int64{"/d/a": 1, "/d/b": 20, "/d/new": 5, "/f": 3, "/g": 40, "/one/x": 9}}
	c := &recheck{place: now, items: []item{{source: "/d"}, {source: "/f"}, {source: "/g"}, {source: "/gone"}, {source: "/one"}, {source: "/empty"}},
		sizes: map[string]int64{"/d/a": 1, "/d/b": 2, "/f": 3, "/g": 4, "/gone": 5, "/one/x": 9}}
	if changed, err := c.wait(); changed != nil || err != nil {
		t.Error("what was not started has a result:", changed, err)
	}
	c.start(t.Context())
	c.start(t.Context())
	changed, err := c.wait()
	c.stop()
	var at []string
	for _, f := range changed {
		at = append(at, f.at)
		if f.reason == "" {
			t.Error("no reason for", f.at)
		}
	}
	slices.Sort(at)
	if err != nil || !slices.Equal(at, []string{"/d/b", "/g", "/gone"}) {
		t.Error(changed, err)
	}
	if now.walks != 1 || now.stats != 4 {
		t.Errorf("%d listings and %d looks; a folder of one file is not listed again", now.walks, now.stats)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c = &recheck{place: now, items: c.items, sizes: c.sizes}
	c.start(ctx)
	if _, err := c.wait(); !fault.Is(err, fault.Canceled) {
		t.Error("a cancelled look gives", err)
	}
	c.stop()
}

func TestReportsArePaced(t *testing.T) {
	var heard []task.Progress
	r := task.NewRun("s", "collect_artifacts", nil, nil, func(p task.Progress) { heard = append(heard, p) })
	report := paced(r, "collecting")
	for i := range 10_000 {
		report(int64(i), i)
	}
	if len(heard) == 0 || len(heard) > 100 || heard[0].What != "collecting" {
		t.Errorf("%d reports of 10,000 files reached the observer", len(heard))
	}
}
