package task

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"agentenv/store/doc"
)

func noops(n int, edges string) string {
	var steps []string
	for i := range n {
		steps = append(steps, fmt.Sprintf(`{"id":"s%d","type":"do"%s}`, i, edges))
	}
	return `[` + strings.Join(steps, ",") + `]`
}

// megabytes returns metadata of about this many megabytes: many maps, lists and strings.
func megabytes(n int) *doc.Object {
	meta := &doc.Object{}
	for i := range n * 100 {
		rows := []any{}
		for j := range 10 {
			rows = append(rows, doc.Of("n", doc.Int(j), "text", strings.Repeat("x", 960)))
		}
		meta.Set(fmt.Sprint("k", i), doc.Of("rows", rows))
	}
	return meta
}

// BenchmarkNoopStep measures one step that does nothing, journaled and synced, as part of a long run.
func BenchmarkNoopStep(b *testing.B) {
	for _, mb := range []int{0, 5} {
		b.Run(fmt.Sprintf("context=%dMB", mb), func(b *testing.B) {
			r := newRig(b, nil)
			const steps = 250
			task, meta := r.task(noops(steps, "")), megabytes(mb)
			b.ResetTimer()
			var ran int
			var spent time.Duration
			for ran < b.N {
				began := time.Time{}
				w := &firstStart{at: &began}
				if _, err := r.engine.Run(context.Background(), task, Options{Metadata: meta, Observer: w}); err != nil {
					b.Fatal(err)
				}
				spent += w.last.Sub(began)
				ran += steps
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(ran), "ns/step")
		})
	}
}

// firstStart notes when the first step began and the last one ended.
type firstStart struct {
	at   *time.Time
	last time.Time
}

func (f *firstStart) StepStarted(Event) {
	if f.at.IsZero() {
		*f.at = time.Now()
	}
}
func (f *firstStart) StepProgress(Event) {}
func (f *firstStart) StepEnded(Event)    { f.last = time.Now() }

// BenchmarkRun measures whole runs: the two that are promised, and a wide one.
func BenchmarkRun(b *testing.B) {
	for _, c := range []struct {
		name  string
		steps string
		mb    int
	}{
		{"300 noop steps", noops(300, ""), 0},
		{"300 noop steps at once", noops(300, `,"depends_on":[]`), 0},
		{"20 noop steps beside 5 MB", noops(20, ""), 5},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, nil)
			task, meta := r.task(c.steps), megabytes(c.mb)
			for b.Loop() {
				if _, err := r.engine.Run(context.Background(), task, Options{Metadata: meta}); err != nil {
					b.Fatal(err)
				}
			}
			b.Logf("%s: %v", c.name, b.Elapsed()/time.Duration(b.N))
		})
	}
}
