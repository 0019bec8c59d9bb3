package trajectory_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"agentenv/fault"
	"agentenv/protocol/trajectory"
)

func store(t *testing.T, contexts int) (*trajectory.Store, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return trajectory.NewStore(slog.New(slog.NewTextHandler(&log, nil)), contexts), &log
}

func open(t *testing.T, s *trajectory.Store, context, task string, events ...string) *trajectory.Log {
	t.Helper()
	l, err := s.Open(context, task)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) > 0 {
		s.Start(l)
		if err := l.SetFormat("f-" + task); err != nil {
			t.Fatal(err)
		}
	}
	add(t, l, events...)
	return l
}

func add(t *testing.T, l *trajectory.Log, events ...string) {
	t.Helper()
	for _, e := range events {
		if err := l.Append(map[string]any{"e": e}); err != nil {
			t.Fatal(err)
		}
	}
}

func shown(t *testing.T, p trajectory.Page, err error) string {
	t.Helper()
	if err != nil {
		return string(fault.KindOf(err))
	}
	var b bytes.Buffer
	if n, err := p.WriteTo(&b); err != nil || n != int64(b.Len()) {
		t.Fatal(n, err)
	}
	return b.String()
}

func TestAppend(t *testing.T) {
	t.Parallel()
	s, _ := store(t, 0)
	l := open(t, s, "c", "t")
	if err := l.Append(map[string]any{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a format: %v", err)
	}
	for _, blank := range []string{"", " \t"} {
		if err := l.SetFormat(blank); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", blank, err)
		}
	}
	if err := l.SetFormat("one"); err != nil {
		t.Error(err)
	}
	if err := l.SetFormat("two"); err != nil {
		t.Errorf("before the first event: %v", err)
	}
	for _, bad := range []any{nil, 5, "x", []int{1}, math.NaN(), map[string]any{"n": math.Inf(1)}, func() {}} {
		if err := l.Append(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%T: %v", bad, err)
		}
	}
	event := map[string]any{"a": 1}
	if err := l.Append(event); err != nil {
		t.Fatal(err)
	}
	event["a"] = 2
	if err := l.SetFormat("three"); !fault.Is(err, fault.Conflict) {
		t.Errorf("after the first event: %v", err)
	}
	if err := l.SetFormat("two"); err != nil {
		t.Errorf("the same again: %v", err)
	}
	s.Seal(l, trajectory.Completed, nil)
	s.Seal(l, trajectory.Failed, nil)
	if err := l.Append(event); !fault.Is(err, fault.Conflict) {
		t.Errorf("after the end: %v", err)
	}
	p, err := s.TaskPage("t", 0, 0)
	if got := shown(t, p, err); got != `{"context_id":"c","task_id":"t","state":"completed","format":"two","next":1,"has_more":false,"events":[{"a":1}]}` {
		t.Error(got)
	}
	if _, err := s.Open("c", "t"); !fault.Is(err, fault.Conflict) {
		t.Errorf("a task twice: %v", err)
	}
}

func TestStatesAndFinalRecords(t *testing.T) {
	t.Parallel()
	s, log := store(t, 0)
	final := func(task string) string {
		r, err := s.Task(task)
		if err != nil {
			return string(fault.KindOf(err))
		}
		var b bytes.Buffer
		if _, err := r.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		in, err := r.Open()
		if err != nil {
			t.Fatal(err)
		}
		array, err := io.ReadAll(in)
		if err != nil || int64(len(array)) != r.Size() || `{"trajectory":`+string(array)+`}` != b.String() {
			t.Errorf("%s, size %d: %s", array, r.Size(), b.String())
		}
		return b.String()
	}
	l := open(t, s, "c", "t")
	s.Start(l)
	state := func(task string) trajectory.State {
		p, err := s.TaskPage(task, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return p.State
	}
	if got := final("t") + string(state("t")); got != "not foundpending" {
		t.Error(got)
	}
	if err := l.SetFormat("f"); err != nil {
		t.Fatal(err)
	}
	add(t, l, "1", "2")
	if got := final("t") + string(state("t")); got != "not foundrunning" {
		t.Error(got)
	}
	s.Seal(l, trajectory.Failed, nil)
	if got := final("t") + string(state("t")); got != `{"trajectory":[{"e":"1"},{"e":"2"}]}failed` {
		t.Error(got)
	}
	s.Seal(open(t, s, "c", "empty"), trajectory.Completed, nil)
	if got := final("empty"); got != "not found" {
		t.Error(got)
	}
	s.Seal(open(t, s, "c", "native", "x"), trajectory.Completed, &trajectory.Native{Format: "n", Payload: map[string]any{"k": []int{1}}, Version: 1})
	if got := final("native"); got != `{"trajectory":{"k":[1]}}` || strings.Count(log.String(), "WARN") != 1 {
		t.Error(got, log)
	}
	s.Seal(open(t, s, "c", "broken", "x"), trajectory.Completed, &trajectory.Native{Format: "n", Payload: math.NaN(), Version: 1})
	if got := final("broken"); got != `{"trajectory":[{"e":"x"}]}` {
		t.Error(got)
	}
	if got := final("unknown"); got != "not found" {
		t.Error(got)
	}
	r, err := s.Context("c")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteArray(&b); err != nil || b.String() != `[{"e":"1"},{"e":"2"},{"e":"x"},{"e":"x"}]` {
		t.Error(b.String(), err)
	}
	open(t, s, "d", "quiet")
	if r, err := s.Context("d"); err != nil || r.Size() != 2 {
		t.Error(err)
	}
	if _, err := s.Context("unknown"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

func TestContextPages(t *testing.T) {
	t.Parallel()
	s, _ := store(t, 0)
	page := func(after, limit int) string {
		p, err := s.ContextPage("c", after, limit)
		if err != nil {
			return string(fault.KindOf(err))
		}
		var events []string
		for _, e := range p.Events {
			events = append(events, string(e))
		}
		return fmt.Sprint(p.TaskID, " ", p.State, " ", p.Format, " ", events, " ", p.Next, " ", p.HasMore)
	}
	if got := page(0, 0); got != "not found" {
		t.Error(got)
	}
	one := open(t, s, "c", "one", "1")
	late, two := open(t, s, "c", "late"), open(t, s, "c", "two")
	if got := page(0, 0); got != `one running f-one [{"e":"1"}] 1 false` {
		t.Error(got)
	}
	s.Seal(one, trajectory.Completed, nil)
	if got := page(0, 0); got != `late pending f-one [{"e":"1"}] 1 false` { // what waits keeps the earlier format
		t.Error(got)
	}
	s.Start(two) // before the one that came earlier
	s.Start(two)
	if err := two.SetFormat("f-two"); err != nil {
		t.Fatal(err)
	}
	add(t, two, "2", "3")
	if got := page(1, 0); got != `two running f-two [{"e":"2"} {"e":"3"}] 3 false` {
		t.Error(got)
	}
	s.Start(late)
	if err := late.SetFormat("f-late"); err != nil {
		t.Fatal(err)
	}
	add(t, late, "4")
	for _, c := range []struct {
		after, limit int
		want         string
	}{
		{0, 1, `two running f-late [{"e":"1"}] 1 true`}, {2, 2, `two running f-late [{"e":"3"} {"e":"4"}] 4 false`},
		{4, 0, `two running f-late [] 4 false`}, {5, 0, "invalid"}, {-1, 0, "invalid"},
	} {
		if got := page(c.after, c.limit); got != c.want {
			t.Errorf("%d, %d: %s", c.after, c.limit, got)
		}
	}
	s.Seal(two, trajectory.Completed, nil)
	s.Seal(late, trajectory.Canceled, nil)
	if got := page(4, 0); got != `late canceled f-late [] 4 false` {
		t.Error(got)
	}
}

func TestPagesHaveBounds(t *testing.T) {
	t.Parallel()
	s, _ := store(t, 0)
	big := strings.Repeat("x", 3<<20)
	open(t, s, "c", "big", big+big, "a", big, big)
	var sizes []int
	for after, more := 0, true; more; {
		p, err := s.TaskPage("big", after, 0)
		if err != nil {
			t.Fatal(err)
		}
		sizes, after, more = append(sizes, len(p.Events)), p.Next, p.HasMore
	}
	if fmt.Sprint(sizes) != "[1 2 1]" {
		t.Error(sizes)
	}
	l := open(t, s, "c", "many", "0")
	for range 1500 {
		add(t, l, "x")
	}
	if p, err := s.TaskPage("many", 0, 5000); err != nil || len(p.Events) != 1000 || !p.HasMore {
		t.Error(len(p.Events), err)
	}
}

func TestABigLogIsToldOnce(t *testing.T) {
	t.Parallel()
	s, log := store(t, 0)
	l := open(t, s, "c", "t", "0")
	trajectory.Grow(l, 100<<20)
	for range 3 {
		add(t, l, "x")
	}
	if n := strings.Count(log.String(), "unusually big"); n != 1 {
		t.Error(n)
	}
}

func TestContextsUsedLongestAgoGo(t *testing.T) {
	t.Parallel()
	s, _ := store(t, 2)
	known := func(context string) bool { _, err := s.Context(context); return err == nil }
	a, b := open(t, s, "a", "ta", "1"), open(t, s, "b", "tb", "1")
	s.Seal(a, trajectory.Completed, nil)
	c := open(t, s, "c", "tc", "1")
	if known("a") || !known("b") || !known("c") {
		t.Error("the one that ended goes")
	}
	open(t, s, "d", "td")
	if !known("b") || !known("c") || !known("d") {
		t.Error("a context with a task that goes on was dropped")
	}
	s.Seal(b, trajectory.Completed, nil)
	if !known("b") {
		t.Error("the one that just ended was dropped")
	}
	s.Seal(c, trajectory.Completed, nil)
	if known("b") || !known("c") || !known("d") {
		t.Error("two are kept")
	}
	if _, err := s.TaskPage("tb", 0, 0); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	s.Start(b) // of a context that is gone
	s.Seal(b, trajectory.Failed, nil)
}

// Whatever the order in which tasks come, start, write and end, the pages of a context that are read on the way join to its whole.
func TestPagesJoinToTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := trajectory.NewStore(slog.New(slog.DiscardHandler), 0)
		var waiting []*trajectory.Log
		var running *trajectory.Log
		var joined []json.RawMessage
		next, written := 0, 0
		for i := range rapid.IntRange(1, 60).Draw(r, "steps") {
			switch rapid.IntRange(0, 4).Draw(r, "what") {
			case 0:
				l, err := s.Open("c", fmt.Sprint(i))
				if err != nil {
					r.Fatal(err)
				}
				waiting = append(waiting, l)
			case 1:
				if running == nil && len(waiting) > 0 {
					n := rapid.IntRange(0, len(waiting)-1).Draw(r, "which")
					running = waiting[n]
					waiting = append(waiting[:n], waiting[n+1:]...)
					s.Start(running)
				}
			case 2:
				if running != nil {
					_ = running.SetFormat("f")
					if err := running.Append(map[string]int{"n": written}); err != nil {
						r.Fatal(err)
					}
					written++
				}
			case 3:
				if running != nil {
					s.Seal(running, trajectory.Completed, nil)
					running = nil
				}
			case 4:
				if p, err := s.ContextPage("c", next, rapid.IntRange(0, 3).Draw(r, "limit")); err == nil {
					for _, e := range p.Events {
						joined = append(joined, e)
					}
					next = p.Next
				}
			}
		}
		for more := written > next; more; {
			p, err := s.ContextPage("c", next, 2)
			if err != nil {
				r.Fatal(err)
			}
			for _, e := range p.Events {
				joined = append(joined, e)
			}
			next, more = p.Next, p.HasMore
		}
		for i, e := range joined {
			if string(e) != fmt.Sprintf(`{"n":%d}`, i) {
				r.Fatalf("event %d is %s", i, e)
			}
		}
		if len(joined) != written {
			r.Fatalf("%d of %d events", len(joined), written)
		}
	})
}
