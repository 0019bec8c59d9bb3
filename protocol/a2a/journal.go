package a2a

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	wire "github.com/a2aproject/a2a-go/a2a"
	"golang.org/x/sys/unix"

	"agentenv/fault"
	"agentenv/protocol/trajectory"
)

// journal keeps tasks in a folder, one file each, so that an agent that was started again knows them. A file is a list of JSON lines: the
// task as submitted, what its trajectory was told and each new status. It goes when the task is forgotten.
type journal struct {
	dir  string
	log  *slog.Logger
	lock *os.File

	mu   sync.Mutex
	next int64
}

// entryLine is one line of a task's file; one field is set.
type entryLine struct {
	Begun  *begunLine                  `json:"begun,omitempty"`
	Format string                      `json:"format,omitempty"`
	Event  json.RawMessage             `json:"event,omitempty"`
	Ended  *endedLine                  `json:"ended,omitempty"`
	Status *wire.TaskStatusUpdateEvent `json:"status,omitempty"`
}

type begunLine struct {
	Task *wire.Task `json:"task"`
	Sent string     `json:"sent"` // the context that the message named
}

type endedLine struct {
	Session string      `json:"session"`
	Native  *nativeLine `json:"native,omitempty"`
}

type nativeLine struct {
	Format  string          `json:"format"`
	Payload json.RawMessage `json:"payload"`
	Version int             `json:"version"`
}

var pageName = regexp.MustCompile(`^(\d{12,18})-.+\.jsonl$`)

// openJournal takes a folder for itself, which is made when it is not there. Conflict when another agent has it.
func openJournal(dir string, log *slog.Logger) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "the journal of the agent in %s", dir)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "the journal of the agent in %s", dir)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		kind := fault.KindOf(err)
		if errors.Is(err, unix.EWOULDBLOCK) {
			kind, err = fault.Conflict, errors.New("another agent writes it; give each a folder of its own")
		}
		return nil, errors.Join(fault.Wrap(kind, err, "the journal of the agent in %s", dir), f.Close())
	}
	return &journal{dir: dir, log: log, lock: f, next: 1}, nil
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return j.lock.Close()
}

// begin starts the file of a task. What cannot be written is logged and costs the task its file, so that nothing half is read later.
func (j *journal) begin(t *wire.Task, sent string) *page {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	n := j.next
	j.next++
	j.mu.Unlock()
	p := &page{path: filepath.Join(j.dir, fmt.Sprintf("%012d-%s.jsonl", n, t.ID)), log: j.log}
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		p.fail(err)
		return p
	}
	p.f = f
	p.write(entryLine{Begun: &begunLine{Task: t, Sent: sent}})
	return p
}

// page is the file of one task. Safe for concurrent use; a nil page keeps nothing.
type page struct {
	path string
	log  *slog.Logger

	mu sync.Mutex
	f  *os.File // nil once it is closed
}

func (p *page) write(l entryLine) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f == nil {
		return
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = p.f.Write(append(text, '\n'))
	}
	if err != nil {
		p.fail(err)
	}
}

// status writes a new status, the last one so that it survives a loss of power.
func (p *page) status(e *wire.TaskStatusUpdateEvent) {
	if p == nil {
		return
	}
	p.write(entryLine{Status: e})
	if !e.Final {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f == nil {
		return
	}
	err := p.f.Sync()
	if err = errors.Join(err, p.f.Close()); err != nil {
		p.fail(err)
	}
	p.f = nil
}

// ended writes what the code left behind when it returned.
func (p *page) ended(r Result) {
	if p == nil {
		return
	}
	l := endedLine{Session: r.SessionRef}
	if n := r.Trajectory; n != nil {
		if payload, err := json.Marshal(n.Payload); err == nil { // one that is no JSON is dropped by the log too
			l.Native = &nativeLine{Format: n.Format, Payload: payload, Version: n.Version}
		}
	}
	p.write(entryLine{Ended: &l})
}

// told is what the trajectory's log hands on.
func (p *page) told(format string, event []byte) {
	p.write(entryLine{Format: format, Event: event})
}

func (p *page) fail(err error) {
	p.log.Warn("a task is not kept in the journal, so this agent will not know it once it is started again", "file", p.path, "error", err)
	if p.f != nil {
		_ = p.f.Close()
		p.f = nil
	}
	p.remove()
}

func (p *page) remove() {
	if p == nil {
		return
	}
	if err := os.Remove(p.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.log.Warn("a file of the journal was not removed", "file", p.path, "error", err)
	}
}

// kept is a task as its file tells of it.
type kept struct {
	page   *page
	number int64
	lines  []entryLine // but the first
	task   wire.Task
	sent   string
	whole  int64 // bytes up to the line that was cut off
	ended  bool
	resume string // the session that the code gave
}

// read returns the tasks of the folder in the order in which they began. A file that holds no task is left where it is.
func (j *journal) read() ([]*kept, error) {
	found, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "the journal of the agent in %s", j.dir)
	}
	var out []*kept
	ids := map[wire.TaskID]bool{}
	for _, e := range found {
		m := pageName.FindStringSubmatch(e.Name())
		if m == nil || !e.Type().IsRegular() {
			continue
		}
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			continue
		}
		j.next = max(j.next, n+1)
		k := &kept{number: n, page: &page{path: filepath.Join(j.dir, e.Name()), log: j.log}}
		if err := k.read(); err != nil {
			j.log.Warn("a file of the journal is not read", "file", k.page.path, "error", err)
			continue
		}
		if ids[k.task.ID] {
			j.log.Warn("a file of the journal is not read", "file", k.page.path, "error", "another one is of the same task")
			continue
		}
		ids[k.task.ID] = true
		out = append(out, k)
	}
	slices.SortStableFunc(out, func(a, b *kept) int { return cmp.Compare(a.number, b.number) })
	return out, nil
}

// read reads the file, but for a last line that was cut off. One that is damaged elsewhere is Invalid.
func (k *kept) read() error {
	f, err := os.Open(k.page.path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for first := true; ; first = false {
		text, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		var l entryLine
		switch bad := json.Unmarshal(bytes.TrimSpace(text), &l) != nil; {
		case first && (bad || err != nil):
			return fault.New(fault.Invalid, "it holds no task")
		case err != nil: // the end, and a line that was cut off may stand before it
			return nil
		case bad:
			return fault.New(fault.Invalid, "it is damaged after %d bytes", k.whole)
		}
		if first {
			if l.Begun == nil || l.Begun.Task == nil || !strings.HasSuffix(k.page.path, "-"+string(l.Begun.Task.ID)+".jsonl") ||
				len(l.Begun.Task.History) == 0 || l.Begun.Task.History[0] == nil {
				return fault.New(fault.Invalid, "it holds no task")
			}
			k.task, k.sent = *l.Begun.Task, l.Begun.Sent
		} else {
			k.take(l)
		}
		k.whole += int64(len(text))
	}
}

func (k *kept) take(l entryLine) {
	if l.Ended != nil {
		k.resume = l.Ended.Session
	}
	if e := l.Status; e != nil {
		if old := k.task.Status.Message; old != nil {
			k.task.History = append(k.task.History, old)
		}
		k.task.Status = e.Status
		k.task.Metadata = merged(k.task.Metadata, e.Metadata)
		k.ended = e.Status.State.Terminal()
	}
	k.lines = append(k.lines, l)
}

// retell gives a fresh log what the file knows of the trajectory.
func (k *kept) retell(logs *trajectory.Store) (*trajectory.Log, error) {
	l, err := logs.Open(k.task.ContextID, string(k.task.ID))
	if err != nil {
		return nil, err
	}
	var native *trajectory.Native
	for _, one := range k.lines {
		switch {
		case one.Event != nil:
			err = l.Append(one.Event)
		case one.Format != "":
			err = l.SetFormat(one.Format)
		case one.Ended != nil && one.Ended.Native != nil:
			n := one.Ended.Native
			native = &trajectory.Native{Format: n.Format, Payload: n.Payload, Version: n.Version}
		}
		if err != nil {
			k.page.log.Warn("a part of a trajectory in the journal is not read", "file", k.page.path, "error", err)
		}
	}
	logs.Start(l)
	logs.Seal(l, sealed[k.task.Status.State], native)
	return l, nil
}

// interrupt ends a task that went on when the agent went down.
func (k *kept) interrupt(t *task) {
	f, err := os.OpenFile(k.page.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		k.page.f, err = f, f.Truncate(k.whole)
	}
	if err != nil {
		k.page.fail(err)
	}
	const why = "the agent went down while it worked on this, and was started again"
	r := Result{Failure: &Failure{Code: "framework.agent_restarted", Message: why, Type: InfraError}, Parts: []Part{Text(why)}}
	t.publish(wire.TaskStateFailed, r.message(), nil)
	k.task = t.wire
}

// restore takes up the tasks of a journal, which it is to keep from here on.
func (m *tasks) restore(j *journal) error {
	all, err := j.read()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.journal = j
	over := make(chan struct{})
	close(over)
	for _, k := range all {
		t := &task{id: string(k.task.ID), context: k.task.ContextID, wire: k.task, page: k.page, over: over, done: make(chan struct{}), now: m.now}
		if k.ended {
			close(t.done)
		} else {
			t.feed = &feed{changed: make(chan struct{})}
			k.interrupt(t)
		}
		if t.log, err = k.retell(m.logs); err != nil {
			return err
		}
		c := m.talk(t.context)
		if k.resume != "" {
			c.session = k.resume
		}
		key := sentKey{k.sent, t.wire.History[0].ID}
		c.tasks = append(c.tasks, &talkTask{t, key})
		m.byID[t.id], m.sent[key] = t, t
		m.forget(c)
	}
	return nil
}
