package agents

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// TestASnapshotThatDoesNotEnd keeps the last one from being taken, and is given up then.
func TestASnapshotThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run := task.NewRun("ask", "prompt_agent", nil, nil, nil)
		captures, abort := context.WithCancel(t.Context())
		s := &series{t: &talk{promptAgent: &promptAgent{agent: "a"}, r: run, context: "c"}, plan: &seriesPlan{limit: 20 * time.Second, atEnd: true, most: 1},
			began: time.Now(), stop: func() {}, abort: abort, over: make(chan struct{})}
		go func() {
			<-captures.Done()
			close(s.over)
		}()
		began := time.Now()
		err := s.end(t.Context())
		if !fault.Is(err, fault.Timeout) || !strings.Contains(err.Error(), "did not end within 35s") || time.Since(began) != 35*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		row := run.Metadata("agent_snapshots").([]any)[0].(*doc.Object)
		if row.Str("capture_status") != "skipped" || row.Str("capture_reason") != "final_capture_lock_timeout" || !row.Bool("is_final") {
			t.Errorf("recorded %s", doc.Canonical(row))
		}
	})
}
