//go:build integration

package interop_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver behind database/sql

	"agentenv/test/kit"
)

// TestAHubBesideOurQueue has the reference serve the state folder in which our queue lies: it lists our records and leaves them alone,
// although their processes are gone; a record of its own it marks. Our worker then runs ours and leaves the other.
func TestAHubBesideOurQueue(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	file := filepath.Join(kit.Write(t, u.Home, kit.Files{"steps.json": `[{"id":"a","type":"teardown_sandboxes","agent_names":["ghost"]}]`}), "steps.json")
	u.OK(ours, "task", "create", "--id", "job", file)
	u.OK(ours, "task", "run", "--id", "job")
	u.OK(ours, "task", "run", "--id", "job", "--detach")
	db, err := sql.Open("sqlite", "file:"+filepath.Join(u.State, "document_store", "documents.db")+"?mode=rw&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	records := func() map[string]map[string]any {
		out := map[string]map[string]any{}
		rows, err := db.QueryContext(t.Context(), `SELECT doc FROM docs_runs`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				t.Fatal(err)
			}
			d := kit.Parse(t, text).(map[string]any)
			out[d["run_id"].(string)] = d
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return out
	}
	var queued map[string]any
	for _, d := range records() {
		if d["status"] == "QUEUED" {
			queued = d
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dead := map[string]any{"host": host, "pid": 1 << 23, "seen": "2026-01-01T00:00:00.000000+00:00"}
	orphan := func(digit string, set map[string]any) string {
		d := maps.Clone(queued)
		d["run_id"], d["instance_id"], d["owner"] = "local-"+strings.Repeat(digit, 32), "job-"+strings.Repeat(digit, 8), dead
		maps.Copy(d, set)
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), `INSERT INTO docs_runs VALUES (?)`, string(text)); err != nil {
			t.Fatal(err)
		}
		return d["run_id"].(string)
	}
	waits := orphan("a", nil)
	runs := orphan("b", map[string]any{"status": "RUNNING", "started_at_utc": "2026-01-01T00:00:00.000000+00:00"})
	theirs := orphan("c", map[string]any{"runner": "local"})
	before := records()

	port := freePort(t)
	kit.Write(t, u.Home, kit.Files{".agentenv/config.toml": fmt.Sprintf("[explorer]\nport = %d\n", port)})
	hub := u.Command(reference, "up", "--no-bootstrap")
	if err := hub.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		_ = hub.Process.Kill()
		_ = hub.Wait()
	}
	defer stop()
	for end := time.Now().Add(90 * time.Second); records()[theirs]["status"] != "FAILED"; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the hub never looked at its own record: %v", records()[theirs])
		}
	}
	for id, d := range records() {
		if id != theirs && fmt.Sprint(d) != fmt.Sprint(before[id]) {
			t.Errorf("the hub changed our record %v to %v", before[id], d)
		}
	}
	page := get(t, fmt.Sprintf("http://127.0.0.1:%d/api/v1/tasks/job/runs", port))
	for id, d := range records() {
		if !strings.Contains(page, `"run_id":"`+id+`"`) || !strings.Contains(page, `"instance_id":"`+d["instance_id"].(string)+`"`) {
			t.Errorf("the hub does not list %s:\n%s", id, page)
		}
	}
	hubReads(t, port, records())
	marked := fmt.Sprint(records()[theirs])
	if out := u.OK(ours, "runs", "work", "--once"); !strings.Contains(out, "Ran 3 runs: 3 completed.") {
		t.Errorf("our worker:\n%s", out)
	}
	for _, id := range []string{waits, runs, queued["run_id"].(string)} {
		if got := records()[id]["status"]; got != "COMPLETED" {
			t.Errorf("run %s is %v", id, got)
		}
	}
	if got := fmt.Sprint(records()[theirs]); got != marked {
		t.Errorf("our worker changed the reference's record to %s", got)
	}
}

// hubReads compares what the hub says of our run that has ended with what is stored.
func hubReads(t *testing.T, port int, records map[string]map[string]any) {
	t.Helper()
	for _, d := range records {
		if d["status"] != "COMPLETED" {
			continue
		}
		base := fmt.Sprintf("http://127.0.0.1:%d/api/v1/tasks/job/", port)
		id := d["instance_id"].(string)
		in, progress := kit.Parse(t, get(t, base+"instances/"+id)), kit.Parse(t, get(t, base+"instances/"+id+"/progress"))
		meta := kit.At(d, "overrides", "metadata").(map[string]any)
		if kit.At(in, "status") != "completed" || kit.At(in, "context", "metadata", "run_group_id") != meta["run_group_id"] || kit.At(in, "context", "metadata", "workflow_id") != d["run_id"] {
			t.Errorf("the hub reads our instance as %v", in)
		}
		if kit.At(progress, "done") != true || kit.At(progress, "completed_steps", 0, "step_id") != "a" || kit.At(progress, "completed_steps", 0, "status") != "success" {
			t.Errorf("the hub reads its progress as %v", progress)
		}
		group := kit.Parse(t, get(t, base+"run-groups/"+fmt.Sprint(meta["run_group_id"])))
		if text := fmt.Sprint(group); !strings.Contains(text, id) || !strings.Contains(text, d["run_id"].(string)) {
			t.Errorf("the hub reads its group as %s", text)
		}
		return
	}
	t.Error("no run of ours has ended")
}

func freePort(t *testing.T) int {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// get waits until a page is served.
func get(t *testing.T, url string) string {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			text, readErr := io.ReadAll(res.Body)
			res.Body.Close()
			if readErr == nil && res.StatusCode == http.StatusOK {
				return string(text)
			}
			err = fmt.Errorf("status %s: %s", res.Status, text)
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
