package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agentenv/fault"
	"agentenv/sandbox/helper/proc"
	"agentenv/sandbox/helper/wire"
)

// process is a command under way with everything it starts. start comes first; wait is called once, end at most once and
// while wait runs.
type process interface {
	start() error
	// wait returns the exit code when the command ended, and how many processes could not be ended. The error says
	// that somebody else ended the command, or what watched over it.
	wait() (code, left int, err error)
	// end ends the whole tree: SIGTERM, after the grace SIGKILL. It returns how many processes of it could not be ended, as far
	// as wait does not tell.
	end(grace time.Duration) (left int)
}

// direct is a command as a child of this process. What it starts is found by descent and by the mark in its environment.
type direct struct {
	cmd  *exec.Cmd
	mark string
}

func (d *direct) start() error { return d.cmd.Start() }

func (d *direct) wait() (code, left int, err error) {
	d.cmd.Wait()
	return codeOf(d.cmd.ProcessState), 0, nil
}

func (d *direct) end(grace time.Duration) (left int) {
	return len(endTree(d.cmd.Process.Pid, d.mark, grace))
}

// guarded is a command below a guard of the helper, which everything that the command starts is left to, so that nothing
// escapes by shedding its environment, its session or its parents.
type guarded struct {
	cmd      *exec.Cmd // the guard
	all      *guards
	mark     string
	hear     *os.File
	lines    *bufio.Reader
	ask      *os.File
	fallback *time.Timer
}

// newGuarded takes over cmd, which must not have been started.
func newGuarded(all *guards, cmd *exec.Cmd, mark string) (*guarded, error) {
	hear, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	told, ask, err := os.Pipe()
	if err != nil {
		hear.Close()
		tell.Close()
		return nil, err
	}
	c := *cmd
	c.Path, c.Args = all.helper(), append([]string{"agentenv-helper", "guard", cmd.Path}, cmd.Args...)
	c.ExtraFiles = []*os.File{tell, told}
	return &guarded{cmd: &c, all: all, mark: mark, hear: hear, lines: bufio.NewReader(hear), ask: ask}, nil
}

// errNoGuard tells that the guard itself did not start, and the command neither.
type errNoGuard struct{ error }

func (g *guarded) start() error {
	err := g.cmd.Start()
	for _, f := range g.cmd.ExtraFiles {
		f.Close()
	}
	if err != nil {
		g.close()
		return errNoGuard{err}
	}
	line, err := g.lines.ReadString('\n')
	if no, failed := strings.CutPrefix(strings.TrimSpace(line), "failed "); failed {
		n, _ := strconv.Atoi(no)
		err = syscall.Errno(n)
	} else if err == nil {
		return nil
	}
	g.close()
	g.cmd.Wait()
	return err
}

func (g *guarded) close() {
	g.hear.Close()
	g.ask.Close()
}

func (g *guarded) wait() (code, left int, err error) {
	line, lost := g.lines.ReadString('\n')
	if g.fallback != nil {
		g.fallback.Stop()
	}
	g.close()
	var asked int
	if _, e := fmt.Sscanf(line, "exit %d %d %d\n", &code, &left, &asked); lost == nil && e == nil {
		// The guard goes on while something that the command left behind lives, at the longest until the sandbox ends.
		go g.linger()
		if asked != 0 {
			err = errors.New("the command was ended from outside")
		}
		return code, left, err
	}
	g.linger()
	left = len(endTree(g.cmd.Process.Pid, g.mark, 0)) + len(endOrphans(g.all.helper(), 0))
	return codeOf(g.cmd.ProcessState), left, errors.New("what watches over the command was killed")
}

// linger waits for the guard's own end.
func (g *guarded) linger() {
	g.cmd.Wait()
	if s, ok := g.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		g.all.killed.Store(true)
	}
}

func (g *guarded) end(grace time.Duration) (left int) {
	g.fallback = time.AfterFunc(grace+2*killPatience, func() { g.cmd.Process.Kill() })
	fmt.Fprintln(g.ask, grace.Nanoseconds())
	g.ask.Close()
	return 0
}

func codeOf(s *os.ProcessState) int {
	if st, ok := s.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return 128 + int(st.Signal())
	}
	return s.ExitCode()
}

// notStarted is the error of a command that did not begin.
func (h *host) notStarted(err error) error {
	return fault.Wrap(fault.Kind(wire.KindOf(err)), err, "run a command on the %s", h)
}

// endTree ends pid, all that descends from it, and whatever else carries the command's mark.
func endTree(pid int, mark string, grace time.Duration) []proc.Process {
	return proc.End(treeOf(pid, mark), grace, killPatience)
}

// treeOf returns what finds pid, all that descends from it, and whatever else carries the command's mark, also what it found before.
func treeOf(pid int, mark string) func() []proc.Process {
	known := map[proc.Process]bool{}
	return func() []proc.Process {
		all := proc.All()
		alive := map[int]proc.Process{}
		for _, p := range all {
			alive[p.PID] = p
		}
		if p, ok := alive[pid]; ok {
			known[p] = true
		}
		for _, p := range proc.Marked(wire.MarkName + "=" + mark) {
			known[p], alive[p.PID] = true, p // it may have begun since
		}
		var roots []int
		for p := range known {
			if now, ok := alive[p.PID]; ok && now.Start == p.Start {
				roots = append(roots, p.PID)
			} else {
				delete(known, p)
			}
		}
		for _, p := range proc.Below(all, roots...) {
			known[p] = true
		}
		var out []proc.Process
		for p := range known {
			out = append(out, alive[p.PID])
		}
		return out
	}
}
