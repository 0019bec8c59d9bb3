package a2a

import (
	"container/list"
	"context"
	"sync"
	"time"

	wire "github.com/a2aproject/a2a-go/a2a"

	"agentenv/fault"
	"agentenv/protocol/trajectory"
)

const (
	maxLive    = 4096                   // tasks that have not ended; more are refused
	maxPerTalk = 1024                   // tasks that a context is remembered for
	stopGrace  = 500 * time.Millisecond // how long a cancel waits for the code to return before it says canceled
)

// tasks runs tasks, those of one context one after the other, and remembers them as long as their context is among those used last.
type tasks struct {
	run   func(context.Context, *task) Result // whose parts are the whole terminal message
	logs  *trajectory.Store
	now   func() time.Time
	limit int

	journal *journal // nil = none

	base context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	live   int
	byID   map[string]*task
	sent   map[sentKey]*task
	talks  map[string]*list.Element // of *talk
	recent *list.List               // front = used last
}

// sentKey is what makes a message the same one sent again.
type sentKey struct{ context, message string }

// talk is a context.
type talk struct {
	id      string
	tasks   []*talkTask
	live    int
	session string
	tail    <-chan struct{} // closed when the last task's turn is over; nil before the first
}

type talkTask struct {
	*task
	key sentKey
}

func newTasks(run func(context.Context, *task) Result, logs *trajectory.Store, now func() time.Time, contexts int) *tasks {
	m := &tasks{run: run, logs: logs, now: now, limit: contexts, byID: map[string]*task{}, sent: map[sentKey]*task{},
		talks: map[string]*list.Element{}, recent: list.New()}
	m.base, m.stop = context.WithCancel(context.Background())
	return m
}

// start begins to answer a message: first is the task as submitted, and events are all it says. When the message was sent before, it
// returns that task, and no events.
func (m *tasks) start(msg *wire.Message, request *Request, port int) (t *task, first *wire.Task, events *feed, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := sentKey{msg.ContextID, msg.ID}
	if t = m.sent[key]; t != nil {
		m.touch(t.context)
		return t, nil, nil, nil
	}
	if m.closed {
		return nil, nil, nil, fault.New(fault.Unavailable, "the agent is shutting down")
	}
	if m.live >= maxLive {
		return nil, nil, nil, fault.New(fault.Unavailable, "the agent has %d tasks that go on and takes no more", m.live)
	}
	in := msg.ContextID
	if in == "" {
		in = wire.NewContextID()
	}
	t = &task{id: string(wire.NewTaskID()), context: in, request: request, over: make(chan struct{}), done: make(chan struct{}), now: m.now,
		feed: &feed{changed: make(chan struct{})}}
	if t.log, err = m.logs.Open(t.context, t.id); err != nil {
		return nil, nil, nil, err
	}
	t.ctx, t.cancel = context.WithCancel(withPort(m.base, port))
	sent := *msg
	sent.TaskID, sent.ContextID = wire.TaskID(t.id), t.context
	t.wire = wire.Task{ID: sent.TaskID, ContextID: t.context, History: []*wire.Message{&sent}}
	t.wire.Status = t.status(wire.TaskStateSubmitted, nil)
	request.TaskID, request.ContextID, request.Trajectory = t.id, t.context, t.log
	first = t.copy()
	if m.journal != nil {
		t.page = m.journal.begin(first, msg.ContextID)
		t.log.Tee(t.page.told)
	}
	events = t.feed
	events.add(first, false)

	c := m.talk(t.context)
	before := c.tail
	c.tail = t.over
	c.tasks = append(c.tasks, &talkTask{t, key})
	c.live++
	m.live++
	m.byID[t.id], m.sent[key] = t, t
	m.forget(c)
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		m.answer(t, before)
	}()
	return t, first, events, nil
}

// answer is the life of a task.
func (m *tasks) answer(t *task, before <-chan struct{}) {
	defer close(t.over)
	defer t.cancel()
	t.publish(wire.TaskStateWorking, nil, nil)
	if before != nil {
		select {
		case <-before:
		case <-t.ctx.Done():
		}
		if t.ctx.Err() != nil {
			m.end(t, wire.TaskStateCanceled, Result{})
			<-before
			return
		}
	}
	m.logs.Start(t.log)
	m.mu.Lock()
	t.request.SessionRef = m.talk(t.context).session
	m.mu.Unlock()
	r := m.run(t.ctx, t)
	state := wire.TaskStateCompleted
	switch {
	case t.ctx.Err() != nil:
		state = wire.TaskStateCanceled
	case r.Failure != nil:
		state = wire.TaskStateFailed
	}
	if r.SessionRef != "" {
		m.mu.Lock()
		m.talk(t.context).session = r.SessionRef
		m.mu.Unlock()
	}
	m.end(t, state, r)
}

var sealed = map[wire.TaskState]trajectory.State{wire.TaskStateCompleted: trajectory.Completed, wire.TaskStateFailed: trajectory.Failed,
	wire.TaskStateCanceled: trajectory.Canceled}

// end seals the trajectory first, so that who sees the end can read all of it.
func (m *tasks) end(t *task, state wire.TaskState, r Result) {
	state = t.settle(state)
	m.logs.Seal(t.log, sealed[state], r.Trajectory)
	t.page.ended(r)
	m.mu.Lock()
	m.talk(t.context).live--
	m.live--
	m.mu.Unlock()
	var parts []Part
	if state != wire.TaskStateCanceled {
		parts = r.Parts
	}
	t.publish(state, parts, nil)
	t.request = nil
}

// cancel stops a task and returns when it is canceled: when its code returned, or after a grace.
func (m *tasks) cancel(ctx context.Context, t *task) bool {
	if !t.askCancel() {
		return false
	}
	t.cancel()
	wait, done := context.WithTimeout(ctx, stopGrace)
	defer done()
	select {
	case <-t.done:
	case <-wait.Done():
		t.publish(wire.TaskStateCanceled, nil, nil)
	}
	return true
}

// find returns a task, nil when it is not known (any more).
func (m *tasks) find(id string) *task {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.byID[id]
	if t != nil {
		m.touch(t.context)
	}
	return t
}

// close cancels all tasks and waits for their code until the context ends, which is then a Timeout error. A second call waits again.
func (m *tasks) close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.stop()
	over := make(chan struct{})
	go func() {
		defer close(over)
		m.wg.Wait()
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Timeout, "the agent's code goes on although it was told to stop")
	}
}

func (m *tasks) talk(id string) *talk {
	e := m.talks[id]
	if e == nil {
		e = m.recent.PushFront(&talk{id: id})
		m.talks[id] = e
	}
	m.recent.MoveToFront(e)
	return e.Value.(*talk)
}

func (m *tasks) touch(context string) {
	if e := m.talks[context]; e != nil {
		m.recent.MoveToFront(e)
	}
}

// forget drops what is over the limits: the oldest tasks of a long talk, and talks used longest ago in which nothing goes on.
func (m *tasks) forget(keep *talk) {
	for i := 0; len(keep.tasks) > maxPerTalk && i < len(keep.tasks); {
		if !keep.tasks[i].ended() {
			i++
			continue
		}
		m.drop(keep.tasks[i])
		keep.tasks = append(keep.tasks[:i], keep.tasks[i+1:]...)
	}
	for e := m.recent.Back(); e != nil && m.recent.Len() > m.limit; {
		c, before := e.Value.(*talk), e.Prev()
		if c.live == 0 && c != keep {
			for _, t := range c.tasks {
				m.drop(t)
			}
			delete(m.talks, c.id)
			m.recent.Remove(e)
		}
		e = before
	}
}

func (m *tasks) drop(t *talkTask) {
	delete(m.byID, t.id)
	delete(m.sent, t.key)
	t.page.remove()
}
