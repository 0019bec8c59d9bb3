package runner_test

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/runner"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
	"agentenv/task"
)

// clock is a time that only a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// shared is a store that several processes write to.
type shared struct {
	t     *testing.T
	docs  document.Store
	clock *clock
}

func newShared(t *testing.T) *shared {
	t.Helper()
	docs, err := sqlite.New(sqlite.Options{Path: filepath.Join(t.TempDir(), "docs.db")})
	if err != nil {
		t.Fatal(err)
	}
	own, err := sqlite.New(sqlite.Options{Path: filepath.Join(t.TempDir(), "local.db")})
	if err != nil {
		t.Fatal(err)
	}
	router := document.NewRouter(docs, own)
	t.Cleanup(func() {
		if err := router.Close(); err != nil {
			t.Error(err)
		}
	})
	return &shared{t, router, &clock{at: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)}}
}

func (s *shared) as(p sandbox.Process) *runner.Records {
	return runner.NewRecords(s.docs, p, s.clock.now)
}

func (s *shared) add(r *runner.Records, req runner.Request, mine bool) *runner.Record {
	s.t.Helper()
	rec := runner.NewRecord(runner.LocalType, req)
	if err := r.Add(s.t.Context(), rec, mine); err != nil {
		s.t.Fatal(err)
	}
	s.clock.move(time.Millisecond)
	return rec
}

var (
	here      = sandbox.ThisProcess()
	elsewhere = sandbox.Process{Host: "elsewhere", Boot: "b", PID: 7, Start: "8"}
)

// TestRecordAsStored has all fields of the reference's records, with its types, and ours only where they say something.
func TestRecordAsStored(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	r := s.as(elsewhere)
	rec := s.add(r, runner.Request{TaskID: "t", TaskVersion: 2, Instance: "t-1", AgentModel: "m",
		Metadata: doc.Of("run_group_id", "g", "user_overrides", doc.Of("litellm_api_key", "sk", "judge_litellm_api_key", "secret:j"))}, true)
	stored := func() *doc.Object {
		d, err := s.docs.FindOne(t.Context(), "runs", document.By("run_id", rec.ID))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	owner := doc.Of("host", "elsewhere", "pid", doc.Int(7), "seen", "2026-01-02T03:04:05.678901+00:00", "boot", "b", "start", "8")
	want := doc.Of("run_id", rec.ID, "runner", "agent-env-local", "task_id", "t", "task_version", doc.Int(2), "instance_id", "t-1", "status", "QUEUED",
		"created_at_utc", "2026-01-02T03:04:05.678901+00:00", "started_at_utc", nil, "finished_at_utc", nil, "error", nil,
		"overrides", doc.Of("agent_model", "m", "agent_artifact_id", nil, "metadata", doc.Of("run_group_id", "g", "user_overrides", doc.Of("judge_litellm_api_key", "secret:j"))),
		"owner", owner, "secrets_withheld", true)
	if !doc.Equal(stored(), want) || !runner.IsRunID(rec.ID) {
		t.Errorf("stored\n%s\nwant\n%s", doc.Canonical(stored()), doc.Canonical(want))
	}
	if mine, err := r.Claim(t.Context(), rec); !mine || err != nil {
		t.Fatal(mine, err)
	}
	if asked, err := r.RequestCancel(t.Context(), rec, "enough"); !asked || err != nil {
		t.Fatal(asked, err)
	}
	s.clock.move(time.Second)
	if ended, err := r.End(t.Context(), rec, runner.Canceled, task.Cancelled, "enough"); !ended || err != nil {
		t.Fatal(ended, err)
	}
	want.Set("status", "CANCELED").Set("started_at_utc", "2026-01-02T03:04:05.679901+00:00").Set("finished_at_utc", "2026-01-02T03:04:06.679901+00:00").
		Set("error", "enough").Set("outcome_class", "cancelled").Obj("owner").Set("seen", "2026-01-02T03:04:05.679901+00:00")
	if !doc.Equal(stored(), want) {
		t.Errorf("stored\n%s\nwant\n%s", doc.Canonical(stored()), doc.Canonical(want))
	}
}

// TestTheReferencesRecordIsRead takes one as it was written by the reference.
func TestTheReferencesRecordIsRead(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	d, err := doc.ParseObject([]byte(`{"run_id": "local-63b269b436bb44729e657dd645babc5a", "runner": "local", "task_id": "demo", "task_version": 1, "instance_id": "demo-bx8rtzu4",
		"status": "COMPLETED", "created_at_utc": "2026-12-01T05:39:39.774333+00:00", "started_at_utc": "2026-12-01T05:39:39.784385+00:00", "finished_at_utc": "2026-12-01T05:39:39.851881+00:00",
		"error": null, "overrides": {"agent_model": null, "agent_artifact_id": null, "metadata": {"run_group_id": "4e26", "start_step": 0, "keep": false, "task_id": "demo"}},
		"owner": {"host": "vm", "pid": 27533, "seen": "2026-12-01T05:39:39.774302+00:00"}}`), doc.Options{})
	if err == nil {
		err = s.docs.Insert(t.Context(), "runs", d)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.as(here).OfInstance(t.Context(), "demo-bx8rtzu4")
	if err != nil || r.ID != d.Str("run_id") || r.Runner != "local" || r.TaskVersion != 1 || r.Status != runner.Completed || r.Finished == "" || r.Class != "" || r.Cancel != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAlive(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	records := s.as(here)
	owner := func(host string, pid int, start, boot string, ago time.Duration) *doc.Object {
		o := doc.Of("host", host, "pid", doc.Int(pid), "seen", s.clock.now().Add(-ago).Format("2006-01-02T15:04:05.000000+00:00"))
		if start != "" {
			o.Set("start", start).Set("boot", boot)
		}
		return o
	}
	const long = 24 * time.Hour
	for name, c := range map[string]struct {
		owner *doc.Object
		want  bool
	}{
		"nobody":                                  {nil, false},
		"this process, not seen for long":         {owner(here.Host, here.PID, here.Start, here.Boot, long), true},
		"another that had its number":             {owner(here.Host, here.PID, "1", here.Boot, 0), false},
		"before the machine started again":        {owner(here.Host, here.PID, here.Start, "another", 0), false},
		"the reference's own, which has no start": {owner(here.Host, here.PID, "", "", long), true},
		"no such process":                         {owner(here.Host, 1<<22+1, "1", here.Boot, 0), false},
		"elsewhere, within the lease":             {owner("elsewhere", 1, "1", "b", 119*time.Second), true},
		"elsewhere, past the lease":               {owner("elsewhere", 1, "1", "b", 120*time.Second), false},
		"elsewhere, seen at no time":              {doc.Of("host", "elsewhere", "pid", doc.Int(1), "seen", "soon"), false},
	} {
		if got := records.Alive(c.owner); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRunsStill judges an owner on another host by the record of the instance.
func TestRunsStill(t *testing.T) {
	t.Parallel()
	head := doc.Of("host", "elsewhere", "boot", "b", "pid", doc.Int(7), "start", "8")
	for name, c := range map[string]struct {
		record func(s *shared, there *runner.Records)
		after  time.Duration
		want   bool
	}{
		"no record":   {func(*shared, *runner.Records) {}, time.Hour, true},
		"it holds it": {func(s *shared, r *runner.Records) { s.add(r, runner.Request{TaskID: "t", Instance: "t-1"}, true) }, time.Minute, true},
		"not seen":    {func(s *shared, r *runner.Records) { s.add(r, runner.Request{TaskID: "t", Instance: "t-1"}, true) }, 3 * time.Minute, false},
		"taken over": {func(s *shared, _ *runner.Records) {
			s.add(s.as(here), runner.Request{TaskID: "t", Instance: "t-1"}, true)
		}, 0, false},
		"handed back": {func(s *shared, r *runner.Records) { s.add(r, runner.Request{TaskID: "t", Instance: "t-1"}, false) }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t)
			c.record(s, s.as(elsewhere))
			s.clock.move(c.after)
			if got, err := s.as(here).RunsStill(t.Context(), "t-1", head); got != c.want || err != nil {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestOneTerminalStatusWins tries every change of a record on every status.
func TestOneTerminalStatusWins(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	r, other := s.as(here), s.as(elsewhere)
	ctx := t.Context()
	changes := map[string]func(rec *runner.Record) (bool, error){
		"claim":         func(rec *runner.Record) (bool, error) { return r.Claim(ctx, rec) },
		"complete":      func(rec *runner.Record) (bool, error) { return r.End(ctx, rec, runner.Completed, task.Passed, "") },
		"fail":          func(rec *runner.Record) (bool, error) { return r.End(ctx, rec, runner.Failed, task.Failed, "x") },
		"withdraw":      func(rec *runner.Record) (bool, error) { return r.Withdraw(ctx, rec, "x") },
		"ask to cancel": func(rec *runner.Record) (bool, error) { return r.RequestCancel(ctx, rec, "x") },
		"hand back":     func(rec *runner.Record) (bool, error) { return r.Release(ctx, rec, nil) },
		"remove":        func(rec *runner.Record) (bool, error) { return r.Remove(ctx, rec) },
		"another's end": func(rec *runner.Record) (bool, error) { return other.End(ctx, rec, runner.Completed, task.Passed, "") },
	}
	allowed := map[string]string{"queued": "claim complete fail withdraw", "running": "claim complete fail ask to cancel hand back", "completed": "remove", "canceled": "remove"}
	for status, may := range allowed {
		for name, change := range changes {
			rec := s.add(r, runner.Request{TaskID: "t", Instance: "t-1"}, true)
			var ok bool
			var err error
			switch status {
			case "running":
				ok, err = r.Claim(ctx, rec)
			case "completed":
				ok, err = r.End(ctx, rec, runner.Completed, task.Passed, "")
			case "canceled":
				ok, err = r.Withdraw(ctx, rec, "x")
			default:
				ok = true
			}
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			before, _ := r.Get(ctx, rec.ID)
			done, err := change(rec)
			if done != strings.Contains(may, name) || err != nil {
				t.Errorf("%s a %s run: %v, %v", name, status, done, err)
			}
			after, _ := r.Get(ctx, rec.ID)
			if !done && !doc.Equal(before.Document, after.Document) {
				t.Errorf("%s a %s run was refused, and changed it", name, status)
			}
		}
	}
}

// TestOneOfManyClaims has many processes claim a run at once.
func TestOneOfManyClaims(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	for range 5 {
		rec := s.add(s.as(here), runner.Request{TaskID: "t", Instance: "t-1"}, false)
		won := make([]bool, 8)
		var all sync.WaitGroup
		for i := range won {
			all.Go(func() {
				mine := *rec
				var err error
				if won[i], err = s.as(sandbox.Process{Host: "h", PID: i + 1}).Claim(t.Context(), &mine); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		n := 0
		for _, w := range won {
			if w {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d won", n)
		}
	}
}

// TestASignOfLifeBeatsAClaim on another host: who was seen meanwhile is not dead.
func TestASignOfLifeBeatsAClaim(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	there := s.as(elsewhere)
	rec := s.add(there, runner.Request{TaskID: "t", Instance: "t-1"}, true)
	s.clock.move(time.Hour)
	seen, err := s.as(here).Orphans(t.Context(), runner.LocalType)
	if err != nil || len(seen) != 1 {
		t.Fatal(seen, err)
	}
	if lost, err := there.Beat(t.Context(), []*runner.Record{rec}); len(lost) > 0 || err != nil {
		t.Fatal(lost, err)
	}
	if mine, err := s.as(here).Claim(t.Context(), seen[0]); mine || err != nil {
		t.Errorf("%v, %v", mine, err)
	}
	if seen, err = s.as(here).Orphans(t.Context(), runner.LocalType); err != nil || len(seen) != 0 {
		t.Error(seen, err)
	}
}

// TestLists select and order records of both namespaces.
func TestLists(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	r := s.as(here)
	group := func(g string) *doc.Object { return doc.Of("run_group_id", g) }
	a := s.add(r, runner.Request{TaskID: "t", Instance: "t-1", Metadata: group("g")}, false)
	b := s.add(r, runner.Request{TaskID: "@local/u", Instance: "@local/u-2", Metadata: group("g")}, false)
	mid := s.clock.now()
	c := s.add(r, runner.Request{TaskID: "t", Instance: "t-3", Metadata: group("h")}, true)
	d := s.add(r, runner.Request{TaskID: "t", Instance: "t-1"}, false)
	if ok, err := r.Withdraw(t.Context(), d, "x"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	names := map[string]string{a.ID: "a", b.ID: "b", c.ID: "c", d.ID: "d"}
	show := func(list []*runner.Record, err error) string {
		if err != nil {
			t.Error(err)
		}
		var out string
		for _, rec := range list {
			out += names[rec.ID]
		}
		return out
	}
	for _, q := range []struct {
		query runner.Query
		want  string
	}{
		{runner.Query{}, "dcba"}, {runner.Query{Limit: 2}, "dc"}, {runner.Query{TaskID: "t"}, "dca"}, {runner.Query{Group: "g"}, "ba"}, {runner.Query{Instance: "t-1"}, "da"},
		{runner.Query{Status: []runner.Status{runner.Queued}}, "cba"}, {runner.Query{Class: task.Cancelled}, "d"}, {runner.Query{Runner: "local"}, ""},
		{runner.Query{Since: mid}, "dc"}, {runner.Query{Until: mid.Add(-time.Microsecond)}, "ba"},
	} {
		if got := show(r.List(t.Context(), q.query)); got != q.want {
			t.Errorf("%+v: %s, want %s", q.query, got, q.want)
		}
	}
	if got := show(r.Waiting(t.Context(), runner.LocalType, 10)); got != "ab" {
		t.Errorf("waiting: %s", got)
	}
	if got := show(s.as(sandbox.Process{Host: "far"}).Orphans(t.Context(), runner.LocalType)); got != "" {
		t.Errorf("orphans: %s", got)
	}
	s.clock.move(time.Hour)
	if got := show(s.as(sandbox.Process{Host: "far"}).Orphans(t.Context(), runner.LocalType)); got != "c" {
		t.Errorf("orphans later: %s", got)
	}
	byInstance, err := r.OfInstances(t.Context(), []string{"t-1", "@local/u-2", "none"})
	if err != nil || len(byInstance) != 2 || byInstance["t-1"].ID != d.ID || byInstance["@local/u-2"].ID != b.ID {
		t.Errorf("%v, %v", byInstance, err)
	}
	if got, err := r.Get(t.Context(), "none"); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// TestSecretsOfARequest are found wherever they are.
func TestSecretsOfARequest(t *testing.T) {
	t.Parallel()
	req := runner.Request{Metadata: doc.Of("user_overrides", doc.Of("litellm_api_key", "sk", "judge_litellm_api_key", "env:J"), "list", []any{doc.Of("usersim_api_key", "x"), "y"}),
		Context: doc.Of("metadata", doc.Of("remote_tokens", &doc.Object{}))}
	want := "metadata.user_overrides.litellm_api_key metadata.list.usersim_api_key context.metadata.remote_tokens"
	if got := strings.Join(runner.RawSecrets(req), " "); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := runner.RawSecrets(runner.Request{}); got != nil {
		t.Error(got)
	}
}

func TestRunIDs(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{"local-63b269b436bb44729e657dd645babc5a": true, "local-63B269b436bb44729e657dd645babc5a": false, "local-63": false, "t-1": false, "": false,
		"xocal-63b269b436bb44729e657dd645babc5a": false, "local-g3b269b436bb44729e657dd645babc5a": false} {
		if runner.IsRunID(id) != want {
			t.Errorf("%q", id)
		}
	}
}
