//go:build integration

package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentenv/test/kit"
)

const played = `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"},
	{"id":"agent","type":"deploy_agent","a2a_agent_id":"somebody"},
	{"id":"ask","type":"prompt_agent","prompt":"Say <word>","prompt_id":"p1"},
	{"id":"check","type":"verify_sandbox","sandbox_name":"box","criteria":[{"type":"bash_cmd_succeeds","bash_cmd":"true"}]}]`

// episodes is a server of episodes, as a client sees it.
type episodes struct {
	t          *testing.T
	cmd        *exec.Cmd
	out        *bufio.Reader
	errs       *bytes.Buffer
	url, token string
	tokenFile  string
}

func serveEpisodes(t *testing.T, u *kit.User, args ...string) *episodes {
	t.Helper()
	s := &episodes{t: t, cmd: u.Command(program, append([]string{"episode", "serve"}, args...)...), errs: &bytes.Buffer{}}
	pipe, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out, s.cmd.Stderr = bufio.NewReader(pipe), s.errs
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.line("Serving episodes of task talk version=1; played from outside: default-agent")
	s.url = s.line("URL: ")
	s.tokenFile = s.line("Token file: ")
	info, err := os.Stat(s.tokenFile)
	if err != nil || info.Mode() != 0o600 || filepath.Dir(s.tokenFile) != filepath.Join(u.State, "episodes") {
		t.Fatalf("%s: %v, %v", s.tokenFile, info, err)
	}
	text, err := os.ReadFile(s.tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(text))
	return s
}

// line reads a line that begins with a text, and returns what follows.
func (s *episodes) line(start string) string {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), strings.TrimSpace(start))
	if !ok {
		s.t.Fatalf("%q, %v, %s; want a line that begins %q", line, err, s.errs, start)
	}
	return strings.TrimSpace(rest)
}

func (s *episodes) post(path, body string) map[string]any {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/v1/episodes"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	var answer map[string]any
	if err != nil || json.Unmarshal(text, &answer) != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %d %s, %v", path, res.StatusCode, text, err)
	}
	return answer
}

// begin starts an episode and waits for its turn.
func (s *episodes) begin() (id string) {
	s.t.Helper()
	id = s.post("", `{"seed":{"word":"hi"}}`)["episode_id"].(string)
	if turn := s.post("/"+id+"/next", ``); kit.At(turn, "turn", "prompt") != "Say hi" {
		s.t.Fatalf("%v", turn)
	}
	return id
}

func (s *episodes) ended() int {
	s.t.Helper()
	rest, _ := io.ReadAll(s.out)
	_ = s.cmd.Wait()
	if all := string(rest) + s.errs.String(); strings.Contains(all, s.token) {
		s.t.Errorf("the token is in the output: %s", all)
	}
	return s.cmd.ProcessState.ExitCode()
}

func storedTalk(t *testing.T) *kit.User {
	t.Helper()
	u := kit.NewUser(t)
	kit.Write(t, u.Home, kit.Files{"talk.json": played})
	u.OK(program, "task", "create", "talk.json", "--id", "talk", "--skip-validation") // the agent is played from outside: nobody stored it
	return u
}

func stored(t *testing.T, u *kit.User, id string) any {
	t.Helper()
	return kit.Parse(t, u.OK(program, "task", "get-instance", "--id", id, "--json"))
}

// TestEpisodeServed plays an episode to its end, leaves another open, and ends the server by a signal.
func TestEpisodeServed(t *testing.T) {
	t.Parallel()
	u := storedTalk(t)
	s := serveEpisodes(t, u, "--task", "talk")
	id := s.begin()
	s.post("/"+id+"/turns/1/end", `{"response":"hi"}`)
	res := s.post("/"+id+"/result", ``)
	if res["done"] != true || res["status"] != "completed" || kit.At(res, "scores", 0, "score") != 1.0 {
		t.Errorf("%v", res)
	}
	if in := stored(t, u, id); kit.At(in, "task_id") != "talk" || kit.At(in, "status") != "completed" || kit.At(in, "context", "prompt_responses", 0, "response") != "hi" {
		t.Errorf("%v", in)
	}
	open := s.begin()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.ended(); code != 143 {
		t.Errorf("exit code %d: %s", code, s.errs)
	}
	if _, err := os.Stat(s.tokenFile); err == nil {
		t.Error("the token is still there")
	}
	if in := stored(t, u, open); kit.At(in, "status") != "cancelled" || kit.At(in, "error") != "cancelled by SIGTERM" {
		t.Errorf("%v", in)
	}
	if left, _ := os.ReadDir(u.Sandboxes); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestEpisodeServerKilled leaves a run that is not gone on with, and that can be closed.
func TestEpisodeServerKilled(t *testing.T) {
	t.Parallel()
	u := storedTalk(t)
	s := serveEpisodes(t, u, "--task", "talk", "--agent", "default-agent", "--version", "1")
	id := s.begin()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.ended()
	if r := u.Run(program, "task", "resume", "--id", id); r.Code != 1 || !strings.Contains(r.Stderr, "is an episode, whose agents were played from outside") {
		t.Error(r)
	}
	u.OK(program, "runs", "cancel", id)
	if in := stored(t, u, id); kit.At(in, "status") != "cancelled" {
		t.Errorf("%v", in)
	}
	if _, err := os.Stat(s.tokenFile); err != nil {
		t.Fatal(err)
	}
	next := serveEpisodes(t, u, "--task", "talk", "--turn-timeout", "1s")
	if _, err := os.Stat(s.tokenFile); !os.IsNotExist(err) && next.tokenFile != s.tokenFile {
		t.Errorf("the token of the server that was killed: %v", err)
	}
	id = next.begin()
	if end := next.post("/"+id+"/next", `{"after":1,"wait_seconds":30}`); end["done"] != true {
		t.Errorf("a turn that nobody ended: %v", end)
	}
	if r := next.post("/"+id+"/result", `{"wait_seconds":30}`); r["outcome_class"] != "timed_out" {
		t.Errorf("a turn that nobody ended: %v", r)
	}
	if err := next.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := next.ended(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	if left, err := os.ReadDir(filepath.Join(u.State, "episodes")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestEpisodeServeRefuses(t *testing.T) {
	t.Parallel()
	u := storedTalk(t)
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, `required flag(s) "task" not set`, nil},
		{1, "nope not found", []string{"--task", "nope"}},
		{1, "task 'talk' can't run as an episode: agent 'zoe' is not prompted, those that are: 'default-agent'", []string{"--task", "talk", "--agent", "zoe"}},
		{1, `"0.0.0.0:0" is not an address of this machine alone`, []string{"--task", "talk", "--listen", "0.0.0.0:0"}},
		{2, "--turn-timeout must be at least 1s, not 0s", []string{"--task", "talk", "--turn-timeout", "0s"}},
		{1, "versions begin at 1", []string{"--task", "talk", "--version", "0"}},
	} {
		if r := u.Run(program, append([]string{"episode", "serve"}, c.args...)...); r.Code != c.code || !strings.Contains(r.Stderr, c.want) || r.Stdout != "" {
			t.Errorf("%v: %s", c.args, r)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(u.State, "episodes")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
