package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

// fixture is a run of the tests: its instance, unless status is "", and its records, the newest last.
type fixture struct {
	id, status string
	began      time.Duration // ago
	records    []fixedRecord
}

type fixedRecord struct {
	runner string
	status runner.Status
	owner  *doc.Object
}

func iso(ago time.Duration) string {
	return time.Now().Add(-ago).UTC().Format("2006-01-02T15:04:05.000000+00:00")
}

// ownedBy is an owner on this machine: this process, or one that is gone.
func ownedBy(alive bool) *doc.Object {
	p := sandbox.ThisProcess()
	if !alive {
		p.Start = "1"
	}
	return doc.Of("host", p.Host, "pid", doc.Int(p.PID), "seen", iso(0), "boot", p.Boot, "start", p.Start)
}

// runID is the id of the n-th record of a fixture.
func runID(id string, n int) string {
	return "local-" + (strings.Repeat("0", 31-len(id)) + strings.Map(func(r rune) rune { return rune("0123456789abcdef"[r%16]) }, id) + string(rune('0'+n)))[:32]
}

func (b *bench) fill(all []fixture) {
	b.t.Helper()
	s, err := b.app.Open(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.t.Error(err)
		}
	}()
	put := func(coll string, d *doc.Object) {
		if err := s.Documents.Insert(b.t.Context(), coll, d); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, f := range all {
		at := time.Now().Add(-f.began).UTC()
		if f.status != "" {
			d := doc.Of("instance_id", f.id, "task_id", "t", "task_version", doc.Int(1), "status", f.status, "total_steps", doc.Int(2), "current_step", doc.Int(1), "run_generation", doc.Int(0),
				"rev", doc.Int(1), "attempt_epoch", doc.Int(0), "journal_seq", doc.Int(2), "created_at_utc", at.Format("2006-01-02 15:04 UTC"), "created_at_precise_utc", iso(f.began),
				"completed_steps", []any{doc.Of("step_id", "a", "status", "success")}, "context", task.NewContext().Set("metadata", doc.Of("run_group_id", "g-"+f.id)))
			if f.status != "running" {
				d.Set("ended_at_precise_utc", iso(f.began)).Set("outcome_class", map[string]string{"completed": "passed", "failed": "failed", "cancelled": "cancelled"}[f.status])
			}
			put("task_instances", d)
			put("task_step_journal", doc.Of("instance_id", f.id, "step_id", "__seed__", "seq", doc.Int(1), "generation", doc.Int(0), "status", "seed", "ops", &doc.Object{}))
			put("task_step_journal", doc.Of("instance_id", f.id, "step_id", "a", "seq", doc.Int(2), "generation", doc.Int(0), "status", "success", "ops", &doc.Object{}))
			if f.status == "running" {
				put("task_run_heads", doc.Of("instance_id", f.id, "generation", doc.Int(0), "epoch", doc.Int(0), "seq", doc.Int(2), "owner", f.records[len(f.records)-1].owner))
			}
		}
		for i, r := range f.records {
			d := doc.Of("run_id", runID(f.id, i), "runner", r.runner, "task_id", "t", "task_version", doc.Int(1), "instance_id", f.id, "status", string(r.status), "created_at_utc", iso(f.began-time.Duration(i)*time.Millisecond),
				"started_at_utc", nil, "finished_at_utc", nil, "error", nil, "overrides", doc.Of("agent_model", nil, "agent_artifact_id", nil, "metadata", doc.Of("run_group_id", "g-"+f.id)), "owner", nil)
			if r.owner != nil {
				d.Set("owner", r.owner)
			}
			if r.status.Terminal() {
				d.Set("finished_at_utc", iso(f.began)).Set("outcome_class", map[runner.Status]string{runner.Completed: "passed", runner.Failed: "failed", runner.Canceled: "cancelled"}[r.status])
			}
			put("runs", d)
		}
	}
}

const day = 24 * time.Hour

func manyRuns() []fixture {
	ours := func(s runner.Status, owner *doc.Object) []fixedRecord {
		return []fixedRecord{{runner.LocalType, s, owner}}
	}
	return []fixture{
		{"t-old", "completed", 9 * day, ours(runner.Completed, nil)},
		{"t-twice", "failed", 8 * day, append(ours(runner.Failed, nil), fixedRecord{runner.LocalType, runner.Failed, nil})},
		{"t-theirs", "completed", 8*day - time.Hour, []fixedRecord{{"local", runner.Completed, nil}}},
		{"t-alone", "cancelled", 7*day + time.Hour, nil},
		{"t-never", "", 3 * day, ours(runner.Canceled, nil)},
		{"t-gone", "running", 2 * day, ours(runner.Running, ownedBy(false))},
		{"t-runs", "running", day, ours(runner.Running, ownedBy(true))},
		{"t-again", "failed", 12 * time.Hour, append(ours(runner.Failed, nil), fixedRecord{runner.LocalType, runner.Queued, nil})},
		{"t-waits", "", time.Hour, ours(runner.Queued, nil)},
	}
}

// names returns the first two words of the lines of a table, joined.
func names(out string) string {
	var rows []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[0], "t-") {
			rows = append(rows, strings.TrimPrefix(f[0], "t-")+":"+f[1])
		}
	}
	return strings.Join(rows, " ")
}

// TestRunsListWithRecords lists instances and records that belong together once.
func TestRunsListWithRecords(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.fill(manyRuns())
	for args, want := range map[string]string{
		"":                                  "waits:queued again:queued runs:running gone:interrupted never:cancelled alone:cancelled theirs:completed twice:failed old:completed",
		"--status queued":                   "waits:queued again:queued",
		"--status interrupted":              "gone:interrupted",
		"--status interrupted --limit 1":    "gone:interrupted",
		"--status running":                  "runs:running gone:interrupted",
		"--status failed":                   "twice:failed",
		"--status cancelled":                "never:cancelled alone:cancelled",
		"--class cancelled":                 "never:cancelled alone:cancelled",
		"--group g-t-waits":                 "waits:queued",
		"--group g-t-old":                   "old:completed",
		"--older-than 7d":                   "alone:cancelled theirs:completed twice:failed old:completed",
		"--newer-than 13h":                  "waits:queued again:queued",
		"--older-than 13h --newer-than 80h": "runs:running gone:interrupted never:cancelled",
		"--limit 3":                         "waits:queued again:queued runs:running",
		"--task other":                      "",
	} {
		code, out, errs := b.run(append([]string{"runs", "list"}, strings.Fields(args)...)...)
		if got := names(out); code != 0 || got != want {
			t.Errorf("%s: %s\nwant %s\n%s", args, got, want, errs)
		}
	}
	_, out, _ := b.run("runs", "list", "--json", "--limit", "0")
	all, err := doc.ParseObject([]byte(out), doc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, v := range all.Arr("runs") {
		o := v.(*doc.Object)
		ids[o.Str("instance_id")] = o.Str("run_id")
		if missing := len(o.Keys()); missing != 13 {
			t.Errorf("%d keys: %s", missing, doc.Canonical(o))
		}
	}
	for instance, run := range map[string]string{"t-alone": "t-alone", "t-waits": runID("t-waits", 0), "t-twice": runID("t-twice", 1)} {
		if ids[instance] != run {
			t.Errorf("%s is the run %s, not %s", instance, ids[instance], run)
		}
	}
	for _, bad := range []string{"--older-than 7", "--newer-than -1h", "--older-than 1e9d", "--newer-than NaNd"} {
		if code, _, errs := b.run(append([]string{"runs", "list"}, strings.Fields(bad)...)...); code != 2 || !strings.Contains(errs, "is no age") {
			t.Errorf("%s: exit code %d, %s", bad, code, errs)
		}
	}
}

// TestARunIsNamedByEitherID for every command that reads one.
func TestARunIsNamedByEitherID(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.fill(manyRuns())
	for _, command := range []string{"runs show ", "task get-instance --id ", "runs rm --dry-run "} {
		code, one, errs := b.run(strings.Fields(command + "t-twice")...)
		if code != 0 {
			t.Errorf("%s: %s", command, errs)
		}
		for n := range 2 {
			if code, other, errs := b.run(strings.Fields(command + runID("t-twice", n))...); code != 0 || other != one {
				t.Errorf("%s by run %d: exit code %d %s\n%s\nwant\n%s", command, n, code, errs, other, one)
			}
		}
	}
	// One document has the id that was asked for, the other the newest.
	for id, want := range map[string]string{"t-twice": runID("t-twice", 1), runID("t-twice", 0): runID("t-twice", 0), runID("t-twice", 1): runID("t-twice", 1)} {
		code, out, errs := b.run("runs", "show", "--json", id)
		d, err := doc.ParseObject([]byte(out), doc.Options{})
		if code != 0 || err != nil || d.Str("run_id") != want || d.Str("instance_id") != "t-twice" {
			t.Errorf("%s: exit code %d %s\n%s", id, code, errs, out)
		}
	}
	for id, word := range map[string]string{"t-waits": "is queued", runID("t-waits", 0): "is queued", "local-" + strings.Repeat("9", 32): "not found", "t-none": "not found", "t-never": "not begun"} {
		for _, command := range []string{"runs show ", "runs logs ", "task get-instance --id "} {
			if code, _, errs := b.run(strings.Fields(command + id)...); code != 1 || !strings.Contains(errs, word) {
				t.Errorf("%s%s: exit code %d, %s", command, id, code, errs)
			}
		}
	}
}

// TestRunsCancel of runs in every state.
func TestRunsCancel(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.fill(append(manyRuns(), fixture{"t-hub", "running", time.Hour, []fixedRecord{{"local", runner.Running, ownedBy(false)}}}))
	for _, c := range []struct {
		id, out, errs string
		code          int
	}{
		{"t-waits", "t-waits: cancelled\n", "", 0},
		{"t-waits", "t-waits: had ended before (cancelled)\n", "", 0},
		{runID("t-again", 1), "t-again: cancelled\n", "", 0},
		{"t-gone", "t-gone: cancelled; the process that ran it was gone\n", "", 0},
		{"t-old", "t-old: had ended before (completed)\n", "", 0},
		{"t-alone", "t-alone: had ended before\n", "", 0},
		{"t-theirs", "t-theirs: had ended before (completed)\n", "", 0},
		{"t-hub", "", `belongs to the runner "local"`, 1},
		{"t-none", "", "not found", 1},
		{"local-" + strings.Repeat("9", 32), "", "not found", 1},
	} {
		code, out, errs := b.run("runs", "cancel", "--reason", "enough", c.id)
		if code != c.code || out != c.out || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: exit code %d\n%s%s", c.id, code, out, errs)
		}
	}
	s, err := b.app.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for id, want := range map[string]string{"t-gone": "cancelled", "t-again": "failed", "t-old": "completed", "t-runs": "running"} {
		in, err := s.Instances.Get(t.Context(), id)
		if err != nil || in.Status != want || want == "cancelled" && in.Error != "enough" {
			t.Errorf("%s: %+v, %v", id, in, err)
		}
	}
	_, out, _ := b.run("runs", "cancel", "--json", "t-old", "t-none")
	got, err := doc.ParseObject([]byte(out), doc.Options{})
	if err != nil || len(got.Arr("runs")) != 2 || got.Arr("runs")[0].(*doc.Object).Str("status") != "completed" || got.Arr("runs")[1].(*doc.Object).Str("error") == "" {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRunsCancelOfAGroup cancels what has not ended of a group, and nothing of others.
func TestRunsCancelOfAGroup(t *testing.T) {
	t.Parallel()
	b, _, _ := newRunBench(t, nil)
	b.store("t", `[{"id":"a","type":"says","text":"x"}]`)
	_, out, _ := b.run("task", "run", "--id", "t", "--k", "3", "--detach", "--json")
	group := groupOf(t, out)
	_, other, _ := b.run("task", "run", "--id", "t", "--detach", "--json")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--group none", 1, "no run of the group none is on record"},
		{"--group " + group + " t-1", 2, "--group names the runs"},
		{"", 2, "requires at least 1 arg"},
	} {
		if code, out, errs := b.run(append([]string{"runs", "cancel"}, strings.Fields(c.args)...)...); code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%q: exit code %d, %s%s", c.args, code, out, errs)
		}
	}
	code, out, errs := b.run("runs", "cancel", "--group", group)
	if code != 0 || strings.Count(out, ": cancelled\n") != 3 {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if code, out, _ = b.run("runs", "cancel", "--group", group); code != 0 || !strings.HasPrefix(out, "Nothing to cancel") {
		t.Errorf("again: exit code %d\n%s", code, out)
	}
	if code, out, errs = b.run("runs", "work", "--once"); code != 0 || !strings.Contains(out, "Ran 1 run: 1 completed.") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if _, out, _ = b.run("runs", "list", "--group", groupOf(t, other)); !strings.Contains(out, "completed") {
		t.Errorf("the other group: %s", out)
	}
}

// TestRunsShowFollow follows a run from where another terminal would: it waits in the queue, runs, and ends.
func TestRunsShowFollow(t *testing.T) {
	t.Parallel()
	b, _, _ := newRunBench(t, nil)
	b.store("t", `[{"id":"a","type":"says","text":"x"},{"id":"b","type":"needs","file":"`+b.dir+`/ready"},{"id":"c","type":"fails","why":"it broke"}]`)
	b.makeFile("ready")
	_, out, _ := b.run("task", "run", "--id", "t", "--detach", "--json")
	d, err := doc.ParseObject([]byte(out), doc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := d.Arr("runs")[0].(*doc.Object).Str("instance_id")
	s := b.opened()
	var seen strings.Builder
	follows := make(chan error, 1)
	go func() { follows <- followRun(t.Context(), s, id, &seen) }()
	if code, out, _ := b.run("runs", "work", "--once"); code != 1 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if err := <-follows; err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{id + ": ", "task t v1, 3 steps\n", "[1/3] a: success, passed\n[2/3] b: success, passed\n[3/3] c: failure"} {
		if !strings.Contains(seen.String(), line) {
			t.Errorf("no %q in\n%s", line, seen.String())
		}
	}
	for _, args := range [][]string{{"runs", "show", "--follow", id}, {"runs", "show", "-f", "--json", id}} {
		code, out, errs := b.run(args...)
		if code != 0 || !strings.Contains(out+errs, "[2/3] b: success, passed\n") || !strings.Contains(out, "it broke") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, errs)
		}
	}
	if code, _, errs := b.run("runs", "show", "--follow", "none"); code != 1 || !strings.Contains(errs, "not found") {
		t.Errorf("exit code %d %s", code, errs)
	}
}

// TestRunsCancelDoesNotWaitForEver for a process that lives and does not obey.
func TestRunsCancelDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.fill(manyRuns())
		s, err := b.app.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		b.app.Stderr = &said
		began := time.Now()
		if err := b.app.cancelRuns(t.Context(), s, []string{"t-runs"}, "enough", false); err == nil || !strings.Contains(said.String(), "has not ended run") || time.Since(began) < answerWait || time.Since(began) > answerWait+time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		rec, err := s.Records.OfInstance(t.Context(), "t-runs")
		if err != nil || rec.Cancel != "enough" || rec.Status != runner.Running {
			t.Errorf("%+v, %v", rec, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRunsRm removes what has ended, whole, and nothing else.
func TestRunsRm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		gone string // what is not listed afterwards
		says string
	}{
		{"", 2, "", "name the runs"},
		{"t-old --older-than 1d", 2, "", "either"},
		{"--older-than soon", 2, "", "is no age"},
		{"t-old", 1, "", "say --yes"},
		{"--dry-run t-old", 0, "", "1 run, "},
		{"--json t-old", 1, "", "--json cannot ask"},
		{"--yes t-old t-none", 1, "", "t-none"},
		{"--yes t-old t-runs", 1, "", "t-runs has not ended (running)"},
		{"--yes t-gone", 1, "", "has not ended (running)"},
		{"--yes t-waits", 1, "", "has not ended (queued)"},
		{"--yes t-again", 1, "", "has not ended (queued)"},
		{"--yes t-theirs", 1, "", `belongs to the runner "local"`},
		{"--yes t-old t-old t-never", 0, "old never", "Removed 2 runs, "},
		{"--yes t-twice", 0, "twice", "Removed 1 run, "},
		{"--yes --older-than 7d", 0, "old twice alone", "Removed 3 runs, "},
		{"--yes --older-than 10d", 0, "", "Nothing to remove."},
		{"--dry-run --json --older-than 7d", 0, "", `"dry_run": true`},
		{"--yes --json t-old", 0, "old", `"removed": true`},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			b.fill(manyRuns())
			code, out, errs := b.run(append([]string{"runs", "rm"}, strings.Fields(c.args)...)...)
			if code != c.code || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit code %d\n%s%s", code, out, errs)
			}
			_, list, _ := b.run("runs", "list")
			for _, f := range manyRuns() {
				name := strings.TrimPrefix(f.id, "t-")
				want := !strings.Contains(" "+c.gone+" ", " "+name+" ")
				if there := strings.Contains(list, f.id+" "); there != want {
					t.Errorf("%s is there: %v", f.id, there)
				}
			}
			s, err := b.app.Open(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for name := range strings.FieldsSeq(c.gone) {
				for _, coll := range []string{"runs", "task_instances", "task_step_journal", "task_run_heads"} {
					if n, err := s.Documents.Count(t.Context(), coll, document.By("instance_id", "t-"+name)); n != 0 || err != nil {
						t.Errorf("%d documents of %s in %s, %v", n, name, coll, err)
					}
				}
			}
		})
	}
}

// TestRunsRmTakesTheLog and asks on a terminal.
func TestRunsRmTakesTheLog(t *testing.T) {
	t.Parallel()
	for answer, removed := range map[string]bool{"y\n": true, "n\n": false} {
		b := newBench(t, nil)
		b.fill(manyRuns())
		b.logs = filepath.Join(b.dir, "logs")
		if err := os.MkdirAll(b.logs, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"t-old", "t-twice"} {
			if err := os.WriteFile(logFile(b.logs, id), make([]byte, 2048), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b.app.StdinTerminal, b.app.Stdin = true, strings.NewReader(answer)
		code, out, _ := b.run("runs", "rm", "t-old")
		if (code == 0) != removed || !strings.Contains(out, "2.0 KiB") || !strings.Contains(out, "Remove 1 run?") {
			t.Errorf("%q: exit code %d\n%s", answer, code, out)
		}
		if _, err := os.Stat(logFile(b.logs, "t-old")); os.IsNotExist(err) != removed {
			t.Errorf("%q: the log: %v", answer, err)
		}
		if _, err := os.Stat(logFile(b.logs, "t-twice")); err != nil {
			t.Errorf("the log of another run: %v", err)
		}
	}
}

// TestRunsWork drains a queue of runs that pass and fail.
func TestRunsWork(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]string{"t.json": `[{"type":"plain","id":"a"},{"type":"plain","id":"b"}]`})
	b.run("task", "create", "@/t.json", "--id", "t")
	code, out, errs := b.run("runs", "work", "--once")
	if code != 0 || out != "Ran nothing.\n" {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	b.fill([]fixture{{"t-one", "", time.Hour, []fixedRecord{{runner.LocalType, runner.Queued, nil}}}, {"t-two", "running", time.Hour, []fixedRecord{{runner.LocalType, runner.Running, ownedBy(false)}}}})
	code, out, errs = b.run("runs", "work", "--once", "-j", "1")
	for _, line := range []string{"[t-one] step 2/2 b done", "[t-one] completed in", "[t-two] going on", "[t-two] step 2/2 b done", "Ran 2 runs: 2 completed."} {
		if code != 0 || !strings.Contains(out, line) {
			t.Errorf("no line %q; exit code %d\n%s%s", line, code, out, errs)
		}
	}
	b.fill([]fixture{{"t-three", "failed", time.Hour, []fixedRecord{{runner.LocalType, runner.Running, ownedBy(false)}}}})
	if code, out, _ = b.run("runs", "work", "--once"); code != 1 || !strings.Contains(out, "Ran 1 run: 1 failed.") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, _, errs := b.run("runs", "work", "-j", "0"); code != 2 || !strings.Contains(errs, "at least 1") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
}

func FuzzAge(f *testing.F) {
	for _, s := range []string{"90m", "7d", "0.5d", "1h30m", "-1h", "NaNd", "infd", "1e400d", "d", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		age, err := parseAge(text)
		if err != nil && !fault.Is(err, fault.Invalid) || err == nil && age < 0 {
			t.Errorf("%q: %s, %v", text, age, err)
		}
	})
}

// TestARunThatEndedMeanwhile: a run whose process is gone because it is done is not interrupted, however old what was read of it is.
func TestARunThatEndedMeanwhile(t *testing.T) {
	t.Parallel()
	b, _, _ := newRunBench(t, nil)
	b.store("t", `[{"id":"a","type":"says","text":"x"}]`)
	_, out, _ := b.run("task", "run", "--id", "t")
	s := b.opened()
	in, err := s.Instances.Get(t.Context(), firstInstance.FindStringSubmatch(out)[1])
	if err != nil {
		t.Fatal(err)
	}
	s.OwnerAlive = func(*task.Instance) bool { return false }
	in.Status = "running" // as it was read before it ended
	if got := statusOf(s, in); got != "running" {
		t.Error(got)
	}
}
