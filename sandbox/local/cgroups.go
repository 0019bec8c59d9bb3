package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"agentenv/sandbox"
	"agentenv/sandbox/helper/proc"
)

// cgroups gives every command a cgroup (version 2, no controllers) of its own, which nothing that the command starts gets out of
// by shedding its environment, its session or its parents. They lie below one cgroup of this process's. A watcher, a mode
// of the helper, ends what runs in them when this process dies.
type cgroups struct {
	helper func() string
	index  string // a folder in the state folder with a file for each process that has such a cgroup, so that any process finds it
	log    *slog.Logger
	last   atomic.Int64

	mu      sync.Mutex
	opened  bool
	closed  bool
	dir     string // this process's cgroup; "" where there can be none
	alive   *os.File
	watcher *exec.Cmd
	watched chan struct{} // closed when no watcher is looked after any more
}

// indexed is a file of the index.
type indexed struct {
	Dir     string          `json:"cgroup"`
	Process sandbox.Process `json:"process"`
}

const (
	groupPrefix     = "agent-env-" // of the name of a process's cgroup
	watcherPause    = 50 * time.Millisecond
	watcherPatience = 15 * time.Second // it gives commands a grace, and then has patience
)

// own returns the cgroup that this process makes others in, "" where commands have to do without.
func (c *cgroups) own() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.opened {
		c.opened = true
		if err := c.open(); err != nil {
			c.log.Debug("commands on this machine get no cgroups of their own; each runs below a process that watches it", "error", err)
		}
	}
	if c.closed {
		return ""
	}
	return c.dir
}

func (c *cgroups) open() error {
	at, err := ownCgroup()
	if err != nil {
		return err
	}
	if c.helper() == "" {
		return errors.New("there is no helper")
	}
	c.sweep()
	self := sandbox.ThisProcess()
	dir, err := os.MkdirTemp(at, fmt.Sprintf(groupPrefix+"%d-%s-", self.PID, self.Start))
	if err != nil {
		return err
	}
	text, err := json.Marshal(indexed{Dir: dir, Process: self})
	if err == nil {
		err = os.MkdirAll(c.index, 0o700)
	}
	if err == nil {
		err = os.WriteFile(c.indexFile(dir), text, 0o600)
	}
	if err == nil {
		err = c.watch(dir) // also shows that processes can be started in a cgroup here
	}
	if err != nil {
		os.Remove(c.indexFile(dir))
		return errors.Join(err, proc.RemoveCgroup(dir))
	}
	c.dir, c.watched = dir, make(chan struct{})
	go c.keepWatched(c.watcher)
	return nil
}

func (c *cgroups) indexFile(dir string) string { return filepath.Join(c.index, filepath.Base(dir)) }

// watch starts a watcher; mu is held.
func (c *cgroups) watch(dir string) error {
	held, alive, err := os.Pipe()
	if err != nil {
		return err
	}
	defer held.Close()
	cmd := &exec.Cmd{Path: c.helper(), Args: []string{"agentenv-helper", "watch", dir, c.indexFile(dir)}, Env: []string{},
		ExtraFiles: []*os.File{held}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := startIn(cmd, dir); err != nil {
		alive.Close()
		return err
	}
	if c.alive != nil {
		c.alive.Close()
	}
	c.alive, c.watcher = alive, cmd
	return nil
}

// keepWatched waits for a watcher, and starts another when it ends before close. Where that fails, later commands go another way.
func (c *cgroups) keepWatched(cmd *exec.Cmd) {
	defer close(c.watched)
	const longest = time.Second
	for pause := watcherPause; ; pause = min(2*pause, longest) {
		ended := cmd.Wait()
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return
		}
		c.log.Warn("what ends the commands on this machine when agent-env is killed was killed itself; it is started anew", "how", ended)
		err := c.watch(c.dir)
		if err != nil {
			c.log.Warn("it does not start", "error", err)
			c.closed = true // what is left, who comes later removes
		}
		cmd = c.watcher
		c.mu.Unlock()
		if err != nil {
			return
		}
		time.Sleep(pause)
	}
}

// close ends the watcher, which first ends commands that still run and removes this process's cgroup; the cgroups of what
// commands left behind stay. A second call does nothing.
func (c *cgroups) close() {
	c.mu.Lock()
	if c.closed || c.watched == nil {
		c.closed = true
		c.mu.Unlock()
		return
	}
	c.closed = true
	c.alive.Close()
	w := c.watcher.Process
	_ = w.Signal(syscall.SIGCONT)
	late := time.AfterFunc(watcherPatience, func() { _ = w.Kill() })
	c.mu.Unlock()
	<-c.watched
	late.Stop()
}

// of returns the cgroups of a sandbox's commands, whichever process of this state folder made them.
func (c *cgroups) of(id string) []string {
	var out []string
	in := func(dir string) {
		for _, d := range proc.Cgroups(dir) {
			if strings.HasPrefix(filepath.Base(d), id+".") {
				out = append(out, d)
			}
		}
	}
	c.mu.Lock()
	own := c.dir
	c.mu.Unlock()
	if own != "" {
		in(own)
	}
	c.others(own, func(_ string, e indexed) { in(e.Dir) })
	return out
}

// sweep removes empty cgroups of processes that are gone, and forgets of those that are.
func (c *cgroups) sweep() {
	c.others("", func(file string, e indexed) {
		if e.Process.Alive() {
			return
		}
		for _, d := range proc.Cgroups(e.Dir) {
			_ = proc.RemoveCgroup(d) // one that is not empty stays
		}
		if proc.RemoveCgroup(e.Dir) == nil {
			os.Remove(file)
		}
	})
}

// others calls f for what the index has beside own, the cgroup of this process.
func (c *cgroups) others(own string, f func(file string, e indexed)) {
	list, _ := os.ReadDir(c.index)
	for _, l := range list {
		if own != "" && l.Name() == filepath.Base(own) {
			continue
		}
		file := filepath.Join(c.index, l.Name())
		var e indexed
		if b, err := os.ReadFile(file); err == nil && json.Unmarshal(b, &e) == nil && filepath.Base(e.Dir) == l.Name() {
			f(file, e)
		}
	}
}
