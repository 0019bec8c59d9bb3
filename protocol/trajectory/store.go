package trajectory

import (
	"container/list"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"agentenv/fault"
)

// Contexts is how many contexts a store keeps when it is not told otherwise.
const Contexts = 1024

// Store holds the logs of all tasks, by context. Contexts that were not used for longest are dropped first, whole, and never one with a
// task that goes on, nor the one that ended last. It is safe for concurrent use.
type Store struct {
	log   *slog.Logger
	limit int
	ticks atomic.Int64

	mu       sync.Mutex
	tasks    map[string]*Log
	contexts map[string]*list.Element // of *conversation
	recent   *list.List               // front = used last
}

type conversation struct {
	id      string
	logs    []*Log // those that started, in the order of their start, then those that wait, in the order of their arrival
	started int
	live    int
}

// NewStore returns an empty store that keeps at most so many contexts (0 = Contexts) and warns through log.
func NewStore(log *slog.Logger, contexts int) *Store {
	if contexts <= 0 {
		contexts = Contexts
	}
	return &Store{log: log, limit: contexts, tasks: map[string]*Log{}, contexts: map[string]*list.Element{}, recent: list.New()}
}

// Open registers a task and returns its log. A task that is registered already is a Conflict error.
func (s *Store) Open(context, task string) (*Log, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[task] != nil {
		return nil, fault.New(fault.Conflict, "the task %s has a trajectory already", task)
	}
	l := &Log{task: task, context: context, log: s.log, clock: func() int64 { return s.ticks.Add(1) }}
	e := s.contexts[context]
	if e == nil {
		e = s.recent.PushFront(&conversation{id: context})
		s.contexts[context] = e
	}
	c := e.Value.(*conversation)
	c.logs = append(c.logs, l)
	c.live++
	s.tasks[task] = l
	s.recent.MoveToFront(e)
	s.evict(c)
	return l, nil
}

// Start says that the task's code runs now: in its context it goes behind the tasks that started before. A second call changes nothing.
func (s *Store) Start(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.contexts[l.context]
	if e == nil {
		return
	}
	c := e.Value.(*conversation)
	if i := slices.Index(c.logs, l); i >= c.started {
		c.logs = slices.Insert(slices.Delete(c.logs, i, i+1), c.started, l)
		c.started++
	}
}

// Seal ends a log with one of Completed, Failed and Canceled and, when the task has one, its native trajectory. The first seal wins.
func (s *Store) Seal(l *Log, state State, native *Native) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.view().ended() {
		return
	}
	l.seal(state, native)
	if e := s.contexts[l.context]; e != nil {
		c := e.Value.(*conversation)
		c.live--
		s.recent.MoveToFront(e)
		s.evict(c)
	}
}

func (s *Store) evict(keep *conversation) {
	for e := s.recent.Back(); e != nil && s.recent.Len() > s.limit; {
		c, before := e.Value.(*conversation), e.Prev()
		if c.live == 0 && c != keep {
			for _, l := range c.logs {
				delete(s.tasks, l.task)
			}
			delete(s.contexts, c.id)
			s.recent.Remove(e)
		}
		e = before
	}
}

func (s *Store) task(id string) (view, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.tasks[id]
	if l == nil {
		return view{}, "", fault.New(fault.NotFound, "there is no trajectory of a task %q", id)
	}
	s.recent.MoveToFront(s.contexts[l.context])
	return l.view(), l.context, nil
}

func (s *Store) context(id string) ([]view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.contexts[id]
	if e == nil {
		return nil, fault.New(fault.NotFound, "there is no trajectory of a context %q", id)
	}
	s.recent.MoveToFront(e)
	var all []view
	for _, l := range e.Value.(*conversation).logs {
		all = append(all, l.view())
	}
	return all, nil
}
