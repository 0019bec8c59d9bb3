// Package kit holds what the tests of whole programs share: a user with folders of its own, processes and how they end, files, JSON.
// Every function fails the test it is given when it cannot do its work.
package kit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// User is one user of the programs under test: a home, a state folder, a folder of local sandboxes and a folder for temporary files,
// all below Dir. Env is added to the environment of its processes, last. Its methods may be called from several goroutines.
type User struct {
	T                                testing.TB
	Dir, Home, State, Sandboxes, Tmp string
	Env                              []string
}

// NewUser returns a user whose folders end with the test; only the home and the folder for temporary files are there yet.
func NewUser(t testing.TB) *User {
	t.Helper()
	dir := t.TempDir()
	u := &User{T: t, Dir: dir, Home: filepath.Join(dir, "home"), State: filepath.Join(dir, "state", "agent-env"),
		Sandboxes: filepath.Join(dir, "sandboxes"), Tmp: filepath.Join(dir, "tmp")}
	for _, d := range []string{u.Home, u.Tmp} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// Environ is the environment of the user's processes: nothing of the machine's own user but the path and the engine.
func (u *User) Environ() []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + u.Home, "XDG_STATE_HOME=" + filepath.Dir(u.State), "AGENT_ENV_LOCAL_SANDBOX_DIR=" + u.Sandboxes,
		"TMPDIR=" + u.Tmp, "LANG=C.UTF-8", "TZ=UTC"}
	for _, name := range []string{"DOCKER_HOST", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return append(env, u.Env...)
}

// Command is a program that the user calls in its home; it ends with the test.
func (u *User) Command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(u.T.Context(), program, args...)
	cmd.Dir, cmd.Env = u.Home, u.Environ()
	return cmd
}

// Run runs a program to its end, whatever its exit code.
func (u *User) Run(program string, args ...string) Result {
	u.T.Helper()
	return Finish(u.T, u.Command(program, args...))
}

// OK runs a program, which must succeed, and returns its standard output.
func (u *User) OK(program string, args ...string) string {
	u.T.Helper()
	r := u.Run(program, args...)
	if r.Code != 0 {
		u.T.Fatalf("%s %s: %s", program, strings.Join(args, " "), r)
	}
	return r.Stdout
}

// Result is how a process ended. Code is -1 when a signal ended it.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// String shows all of it.
func (r Result) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", r.Code, r.Stdout, r.Stderr)
}

// Finish runs a process to its end. A standard output that the caller has set stays set, and the result's is then empty.
func Finish(t testing.TB, cmd *exec.Cmd) Result {
	t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}
