package a2a_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/trajectory"
)

// keeping is an agent whose tasks do as their message says: "wait" goes on until wait is closed, "native" has a trajectory of another
// program; each tells which session it goes on with.
func keeping(wait <-chan struct{}) a2a.Agent {
	return a2a.Agent{Identity: identity(), Extensions: []a2a.Extension{a2a.Trajectory(true)},
		Stream: func(ctx context.Context, r *a2a.Request, emit a2a.Emit) (a2a.Result, error) {
			if err := r.Trajectory.SetFormat("f"); err != nil {
				return a2a.Result{}, err
			}
			if err := r.Trajectory.Append(map[string]any{"saw": r.Text(), "n": 1.0}); err != nil {
				return a2a.Result{}, err
			}
			if err := emit(a2a.Progress{Parts: []a2a.Part{a2a.Text("on it")}, Metadata: map[string]any{"step": 1}}); err != nil {
				return a2a.Result{}, err
			}
			out := a2a.Result{Parts: []a2a.Part{a2a.Text("session " + r.SessionRef)}, SessionRef: "after " + r.Text()}
			switch r.Text() {
			case "wait":
				select {
				case <-wait:
				case <-ctx.Done():
				}
			case "native":
				out.Trajectory = &trajectory.Native{Format: "other", Payload: []any{map[string]any{"b": 1, "a": 2}}, Version: 1}
			case "fail":
				return a2a.Fail("asked", "no"), nil
			}
			return out, nil
		}}
}

// killed copies the journal as it is at this moment, which is what an agent that is killed leaves.
func killed(t *testing.T, dir string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "journal")
	if err := os.CopyFS(out, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return out
}

func pages(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestStartedAgain: an agent with a journal knows its tasks, their trajectories and sessions when it was started again.
func TestStartedAgain(t *testing.T) {
	t.Parallel()
	dir, wait := filepath.Join(t.TempDir(), "new", "journal"), make(chan struct{})
	p := serve(t, keeping(wait), a2a.Settings{JournalDir: dir})
	var before []object
	for _, text := range []string{"plain <&>", "fail", "native"} {
		before = append(before, p.send(sending{id: text, context: "c", text: text}))
	}
	goes := p.start(sending{id: "open", context: "other", text: "wait"}).text("id")
	traced := func(p *peer, task string) string {
		_, text, _ := p.do("POST", "/ext/trajectory", `{"task_id":"`+task+`"}`)
		return text
	}
	for p.rpc("tasks/get", `{"id":"`+goes+`"}`).text("result", "metadata", "step") != "1" { // which it says after its event
		time.Sleep(5 * time.Millisecond)
	}
	left := killed(t, dir)

	again := serve(t, keeping(wait), a2a.Settings{JournalDir: left})
	for _, task := range before {
		id := task.text("id")
		if got := again.rpc("tasks/get", `{"id":"`+id+`"}`).text("result"); got != p.rpc("tasks/get", `{"id":"`+id+`"}`).text("result") {
			t.Errorf("the task is now\n%s\ninstead of\n%s", got, task)
		}
		if got := traced(again, id); got != traced(p, id) || !strings.Contains(got, "trajectory") {
			t.Errorf("its trajectory is %s instead of %s", got, traced(p, id))
		}
	}
	whole := func(p *peer) string {
		_, text, _ := p.do("POST", "/ext/trajectory", `{"context_id":"c","after":0}`)
		return text
	}
	if got := whole(again); got != whole(p) || strings.Count(got, "saw") != 3 {
		t.Errorf("%s instead of %s", got, whole(p))
	}
	one := again.await(goes, "failed")
	if one.text("status", "message", "parts", 1, "data", "error_code") != "framework.agent_restarted" || one.text("history", 1, "parts", 0, "text") != "on it" || one.text("metadata", "step") != "1" {
		t.Errorf("%v", one)
	}
	if got := traced(again, goes); !strings.Contains(got, `"saw":"wait"`) {
		t.Errorf("%s", got)
	}
	if id := again.send(sending{id: "native", context: "c", text: "native"}).text("id"); id != before[2].text("id") {
		t.Error("a message that was sent before began another task")
	}
	if got := again.send(sending{context: "c", text: "more"}).text("status", "message", "parts", 0, "text"); got != "session after native" {
		t.Error(got)
	}
	close(wait)
	p.await(goes, "completed")

	// Once more: what was interrupted stays so, and a line that was cut off is left out.
	third := killed(t, left)
	last := pages(t, third)
	f, err := os.OpenFile(last[len(last)-1], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"status":{"kin`); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := os.WriteFile(filepath.Join(third, "000000000999-x.jsonl"), []byte("no task\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p3 := serve(t, keeping(nil), a2a.Settings{JournalDir: third})
	p3.await(goes, "failed")
	if got := p3.send(sending{context: "c", text: "x"}).text("status", "message", "parts", 0, "text"); got != "session after more" {
		t.Error(got)
	}
	if !strings.Contains(p3.log.String(), "000000000999-x.jsonl") {
		t.Error("a file that is none goes unsaid")
	}
}

// TestJournalIsBounded: what the agent forgets is forgotten in the folder too, and private.
func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := serve(t, keeping(nil), a2a.Settings{JournalDir: dir, Contexts: 2})
	var first string
	for _, c := range []string{"a", "b", "c", "d"} {
		id := p.send(sending{context: c, text: "x"}).text("id")
		if first == "" {
			first = id
		}
	}
	kept := pages(t, dir)
	if len(kept) != 2 || slices.ContainsFunc(kept, func(s string) bool { return strings.Contains(s, first) }) {
		t.Errorf("%v", kept)
	}
	for _, name := range kept {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", err, info.Mode())
		}
	}
	again := serve(t, keeping(nil), a2a.Settings{JournalDir: killed(t, dir), Contexts: 1})
	if got := again.rpc("tasks/get", `{"id":"`+first+`"}`).text("error", "code"); got != "-32001" {
		t.Error(got)
	}
}

// TestJournalThatCannotBe: a folder that is taken or cannot be is said at the start; a file that cannot be written costs no task.
func TestJournalThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := serve(t, keeping(nil), a2a.Settings{JournalDir: dir})
	if _, err := a2a.New(t.Context(), keeping(nil), a2a.Settings{JournalDir: dir, StagingMaxBytes: -1}); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a2a.New(t.Context(), keeping(nil), a2a.Settings{JournalDir: file, StagingMaxBytes: -1}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if got := p.send(sending{text: "x"}).text("status", "state"); got != "completed" {
		t.Error(got)
	}
	if !strings.Contains(p.log.String(), "journal") {
		t.Error("a task that is not kept goes unsaid")
	}
}

// TestDamagedPages are left as they are, and the agent starts without them.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := serve(t, keeping(nil), a2a.Settings{JournalDir: dir})
	done := p.send(sending{context: "c", text: "x"}).text("id")
	left := killed(t, dir)
	page := pages(t, left)[0]
	whole, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	lines[2] = "{\"torn\n"
	damaged := strings.Join(lines, "")
	for name, text := range map[string]string{page: damaged, filepath.Join(left, "999999999999-x.jsonl"): ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again := serve(t, keeping(nil), a2a.Settings{JournalDir: left})
	if got := again.rpc("tasks/get", `{"id":"`+done+`"}`).text("error", "code"); got != "-32001" {
		t.Error(got)
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != damaged || !strings.Contains(again.log.String(), filepath.Base(page)) {
		t.Errorf("it was changed (%v), or nothing said: %s", err, again.log)
	}
	later := again.send(sending{context: "c", text: "y"}).text("id")
	twice := killed(t, left)
	for _, name := range pages(t, twice) {
		if strings.Contains(name, later) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(twice, "000000000007-"+later+".jsonl"), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	third := serve(t, keeping(nil), a2a.Settings{JournalDir: twice})
	third.await(later, "completed")
}
