package local_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/place"
)

// The environment of this test program as a client that comes to an end, one way or another: its folder, whether commands run
// below guards, and what it runs.
const (
	clientEnv = "AGENTENV_TEST_CLIENT"
	guardsEnv = "AGENTENV_TEST_GUARDS"
	scriptEnv = "AGENTENV_TEST_SCRIPT"
)

// TestClient is the client; by itself it does nothing.
func TestClient(t *testing.T) {
	at := os.Getenv(clientEnv)
	if at == "" {
		return
	}
	p := provider(t, filepath.Join(at, "root"), filepath.Join(at, "state"), os.Getenv(guardsEnv) != "")
	m, err := p.Create(t.Context(), p.NewID(), sandbox.Spec{Mode: sandbox.VM})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(m.Info().ID)
	m.Host().Exec(t.Context(), place.Cmd{Script: os.Getenv(scriptEnv)})
	fmt.Println("ended")
	bufio.NewReader(os.Stdin).ReadString('\n')
}

// otherProcess runs a command as another process: it has printed the sandbox's id.
type otherProcess struct {
	cmd *exec.Cmd
	at  string
	id  string
	out *bufio.Reader
	end func()
}

func startOther(t *testing.T, guards bool, script func(log string) string) *otherProcess {
	t.Helper()
	at := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestClient$")
	cmd.Env = append(os.Environ(), clientEnv+"="+at, scriptEnv+"="+script(filepath.Join(at, "log")))
	if guards {
		cmd.Env = append(cmd.Env, guardsEnv+"=yes")
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	c := &otherProcess{cmd: cmd, at: at, out: bufio.NewReader(out), end: func() { in.Close() }}
	if c.id, err = c.out.ReadString('\n'); err != nil {
		t.Fatal(c.id, err)
	}
	c.id = strings.TrimSpace(c.id)
	written(t, c.log())
	return c
}

func (c *otherProcess) log() string { return filepath.Join(c.at, "log") }

func (c *otherProcess) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

func running(log string) string { return stubborn(log) + "; sleep 60" }

func TestKilledClient(t *testing.T) {
	bothWays(t, func(t *testing.T, guards bool) {
		c := startOther(t, guards, running)
		c.kill()
		time.Sleep(4 * time.Second) // the grace of a dead client's command is 2 s
		silent(t, c.log())
		if list := indexed(c); len(list) > 0 {
			t.Errorf("left behind: %v", list)
		}
	})
}

// What a command leaves behind lives until its sandbox ends, also when its client has come to an end, by itself or not.
func TestLeftBehindByAnotherProcess(t *testing.T) {
	bothWays(t, func(t *testing.T, guards bool) {
		for name, end := range map[string]func(*otherProcess){
			"ended":  func(c *otherProcess) { c.end(); c.cmd.Wait() },
			"killed": (*otherProcess).kill,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := startOther(t, guards, stubborn)
				if line, err := c.out.ReadString('\n'); line != "ended\n" {
					t.Fatal(line, err)
				}
				end(c)
				time.Sleep(3 * time.Second)
				before, _ := os.ReadFile(c.log())
				time.Sleep(300 * time.Millisecond)
				if after, err := os.ReadFile(c.log()); err != nil || bytes.Equal(before, after) {
					t.Errorf("it was ended with its client (%v)", err)
				}
				p := provider(t, filepath.Join(c.at, "root"), filepath.Join(c.at, "state"), guards)
				if err := p.Terminate(t.Context(), c.id); err != nil {
					t.Error(err)
				}
				silent(t, c.log())
				if list := indexed(c); len(list) > 0 {
					t.Errorf("left behind: %v", list)
				}
			})
		}
	})
}

// indexed returns what the state folder of a client knows of cgroups.
func indexed(c *otherProcess) []string {
	list, _ := filepath.Glob(filepath.Join(c.at, "state", "cgroups", "*"))
	return list
}

// hasCgroups reports whether commands have to get cgroups of their own here.
func hasCgroups(t *testing.T) bool {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); strings.Contains(line, " - cgroup2 ") && strings.HasPrefix(f[5], "rw") {
			return os.Geteuid() == 0
		}
	}
	if runtime.GOOS == "linux" {
		t.Log("this machine has no cgroups to write; commands run below guards")
	}
	return false
}

// watchers returns the processes that end the commands of a client with this state folder when it dies.
func watchers(state string) (out []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		var pid int
		if args := bytes.Split(b, []byte{0}); len(args) > 3 && string(args[1]) == "watch" && strings.HasPrefix(string(args[3]), state+"/") {
			fmt.Sscanf(f, "/proc/%d/", &pid)
			out = append(out, pid)
		}
	}
	return out
}

// A watcher that is killed is replaced, and ends what runs with the client all the same.
func TestWatcherIsKilled(t *testing.T) {
	if !hasCgroups(t) {
		return
	}
	t.Parallel()
	c := startOther(t, false, running)
	state := filepath.Join(c.at, "state")
	first := watchers(state)
	if len(first) != 1 {
		t.Fatalf("watchers: %v", first)
	}
	syscall.Kill(first[0], syscall.SIGTERM) // which it does not heed
	syscall.Kill(first[0], syscall.SIGKILL)
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if now := watchers(state); len(now) == 1 && now[0] != first[0] {
			break
		} else if time.Now().After(until) {
			t.Fatalf("watchers: %v, then %v", first, now)
		}
	}
	c.kill()
	time.Sleep(4 * time.Second)
	silent(t, c.log())
	if w, list := watchers(state), indexed(c); len(w)+len(list) > 0 {
		t.Errorf("left behind: %v, %v", w, list)
	}
}

// Without a watcher a killed client's commands live on, and end with their sandbox, whoever ends it.
func TestWatcherAndClientAreKilled(t *testing.T) {
	if !hasCgroups(t) {
		return
	}
	t.Parallel()
	c := startOther(t, false, running)
	state := filepath.Join(c.at, "state")
	for _, pid := range watchers(state) {
		syscall.Kill(pid, syscall.SIGSTOP)
	}
	c.kill()
	for _, pid := range watchers(state) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	p := provider(t, filepath.Join(c.at, "root"), state, false)
	if err := p.Terminate(t.Context(), c.id); err != nil {
		t.Error(err)
	}
	silent(t, c.log())
	if list := indexed(c); len(list) > 0 {
		t.Errorf("left behind: %v", list)
	}
}

// A command has a cgroup of its own here, one that leaves it still ends, and one whose sandbox ends meanwhile says so.
func TestCgroups(t *testing.T) {
	if !hasCgroups(t) {
		return
	}
	t.Parallel()
	p := provider(t, t.TempDir(), t.TempDir(), false)
	id := p.NewID()
	m, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.VM})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Terminate(context.Background(), id)
	seen := map[string]bool{}
	for range 2 {
		r, err := m.Host().Exec(t.Context(), place.Cmd{Script: "grep ^0:: /proc/self/cgroup"})
		if err != nil || !strings.Contains(string(r.Stdout), "/agent-env-") || !strings.Contains(string(r.Stdout), "/"+id+".") {
			t.Fatalf("%+v, %v", r, err)
		}
		seen[string(r.Stdout)] = true
	}
	if len(seen) != 2 {
		t.Errorf("two commands were in %v", seen)
	}
	file := filepath.Join(t.TempDir(), "log")
	flee := `while read -r id up dev root at rest; do case $rest in *" - cgroup2 "*) echo $$ > $at/cgroup.procs || exit 9;; esac; done </proc/self/mountinfo
		grep -q '^0::.*/agent-env-' /proc/self/cgroup && exit 8
		(setsid sh -c 'trap "" TERM; while :; do echo x >> ` + file + `; sleep 0.02; done' &); sleep 60`
	if r, err := m.Host().Exec(t.Context(), place.Cmd{Script: flee, Timeout: 2 * time.Second, Grace: 100 * time.Millisecond}); !fault.Is(err, fault.Timeout) {
		t.Errorf("%+v, error %v, want a timeout", r, err)
	}
	silent(t, file)
	ended := make(chan error)
	go func() {
		_, err := m.Host().Exec(t.Context(), place.Cmd{Script: "echo x >" + file + "2; sleep 60"})
		ended <- err
	}()
	written(t, file+"2")
	if err := p.Terminate(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err := <-ended; !fault.Is(err, fault.Unavailable) {
		t.Errorf("a command that ended with its sandbox: %v", err)
	}
}
