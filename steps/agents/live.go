package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
	"agentenv/store/object"
	"agentenv/task"
)

const (
	liveRead     = 30 * time.Second
	liveLongest  = 60 * time.Second // between two reads that fail
	liveFailure  = 5 * time.Second  // more before the next read for each failure in a row
	liveDrain    = 60 * time.Second // for what is left once the turn is over
	liveDraining = 200 * time.Millisecond
	livePassing  = 5 * time.Second // for the notes about a turn
	liveWrites   = 3               // attempts
)

// live keeps the trajectory of one turn while the agent works: chunks of events as they come, and at the end how the turn ended. It never
// fails the turn.
type live struct {
	t    *talk
	base string // object URL of the turn's folder
	task chan string
	over chan string // the state of the turn
	done chan struct{}

	// The rest belongs to the following goroutine until done is closed.
	next  int64
	state string // as the agent's log has it, "" = it has not ended
	meta  bool
}

// wantsLive reports whether the step keeps its trajectory live, and can: the agent must offer it.
func (t *talk) wantsLive() bool {
	want := t.fields.Bool("live_trajectory")
	if v, given := t.r.Param("live_trajectory"); given {
		want = task.Truthy(v)
	}
	if want && !t.agent.Card.Extension(card.Trajectory).Takes("get", "task_id", "after") {
		warn(t.r, fmt.Sprintf("prompt_agent %q: the agent %q offers no trajectory while it works, so it is kept at the end alone", t.r.StepID, t.promptAgent.agent))
		return false
	}
	return want && t.prefix != ""
}

// followLive begins to keep the trajectory of a turn; nil where it is not wanted. end must follow.
func (t *talk) followLive(ctx context.Context, message string) *live {
	if !t.keepsLive {
		return nil
	}
	l := &live{t: t, base: t.prefix + "/" + message + "/live/", task: make(chan string, 1), over: make(chan string, 1), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.follow(ctx)
	}()
	return l
}

// begun tells the agent's id of the task; on nil it does nothing.
func (l *live) begun(id string) {
	if l != nil {
		l.task <- id
	}
}

// end tells how the turn ended ("" = it was stopped) and waits until what is left is kept; on nil it does nothing.
func (l *live) end(ctx context.Context, state string) {
	if l == nil {
		return
	}
	l.over <- state
	<-l.done
	switch {
	case l.state != "":
		state = l.state
	case state == "" && errors.Is(context.Cause(ctx), context.Canceled), state == agent.Canceled:
		state = "canceled"
	case state != agent.Completed:
		state = "failed"
	}
	l.note(ctx, "end.json", doc.Of("state", state, "next", doc.Int(l.next)))
}

// follow reads the agent's log until it has ended, or for a while after the turn has.
func (l *live) follow(ctx context.Context) {
	var id string
	over := l.over
	var drained <-chan time.Time
	select {
	case id = <-l.task:
	case <-over:
		over, drained = nil, time.After(liveDrain)
		select {
		case id = <-l.task: // a short turn
		default:
			return
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	pause, failures := min(l.t.poll, 250*time.Millisecond), 0
	for {
		more, ended, err := l.read(ctx, id)
		var refused *agent.CallError
		switch {
		case err == nil && ended, errors.As(err, &refused) && refused.Status/100 == 4:
			if err != nil {
				warn(l.t.r, "the trajectory is not kept while the agent works: "+l.t.hide(err.Error()))
			}
			if over != nil {
				<-over
			}
			return
		case err == nil && more:
			continue
		case err == nil:
			failures = 0
		default:
			failures++
		}
		wait := min(pause+time.Duration(failures)*liveFailure, liveLongest)
		if over == nil {
			wait = liveDraining
		}
		timer := time.NewTimer(wait)
		select {
		case <-over:
			over = nil
			drained = time.After(liveDrain)
		case <-timer.C:
		case <-drained:
			timer.Stop()
			return
		}
		timer.Stop()
		pause = min(2*pause, l.t.poll)
	}
}

// read keeps one page. more: there is another one already; ended: the log has, and all of it is kept.
func (l *live) read(ctx context.Context, id string) (more, ended bool, err error) {
	page, err := l.t.deps.Client.Call(ctx, l.t.agent, agent.Call{URI: card.Trajectory, Op: "get", Body: doc.Of("task_id", id, "after", doc.Int(l.next)), Timeout: liveRead})
	if err != nil {
		return false, false, err
	}
	events := page.Arr("events")
	next, ok := page.Int("next")
	if !ok || next != l.next+int64(len(events)) {
		return false, false, fault.New(fault.Unavailable, "the agent's page of events from %d on holds %d and goes on at %v", l.next, len(events), page.Value("next"))
	}
	if format := page.Str("format"); format != "" && !l.meta {
		l.meta = true
		l.note(ctx, "meta.json", doc.Of("format", format))
	}
	if len(events) > 0 {
		var lines bytes.Buffer
		for _, e := range events {
			text, err := doc.Compact(e)
			if err != nil {
				return false, false, err
			}
			lines.WriteString(l.t.hide(string(text)))
			lines.WriteByte('\n')
		}
		if err := l.put(ctx, fmt.Sprintf("%08d-%08d.jsonl", l.next, next), "application/x-ndjson", lines.Bytes()); err != nil {
			return false, false, err
		}
		l.next = next
	}
	more = page.Bool("has_more")
	switch s := page.Str("state"); s {
	case "completed", "failed", "canceled":
		if !more {
			l.state = s
			return false, true, nil
		}
	}
	return more && len(events) > 0, false, nil
}

// note writes a small document about the turn; that it cannot is logged.
func (l *live) note(ctx context.Context, name string, o *doc.Object) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), livePassing)
	defer cancel()
	text, err := doc.Compact(o)
	if err == nil {
		err = l.put(ctx, name, "application/json", text)
	}
	if err != nil {
		l.t.r.Log.Warn("a note about the live trajectory is not kept", "name", name, "error", err)
	}
}

// put writes an object once; one that is there already is that object.
func (l *live) put(ctx context.Context, name, kind string, body []byte) error {
	key, err := l.t.deps.Objects.Key(l.base + name)
	if err != nil {
		return err
	}
	for range liveWrites {
		_, err = l.t.deps.Objects.Put(ctx, object.Item{Key: key, ContentType: kind, Size: int64(len(body)), Body: bytes.NewReader(body)}, false)
		if err == nil || fault.Is(err, fault.Exists) {
			return nil
		}
	}
	return err
}

// followedBy notes which turn came after this one, "" for none; on nil it does nothing.
func (l *live) followedBy(ctx context.Context, message string) {
	if l != nil {
		l.note(ctx, "next.json", doc.Of("turn", textOrNull(message)))
	}
}
