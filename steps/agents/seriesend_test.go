package agents_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/steps/agents"
	"agentenv/store/doc"
	"agentenv/task"
)

// TestASlowSnapshotEndsNoTurn lets the agent answer while its state is being taken: the step waits for that, and takes the last one then.
func TestASlowSnapshotEndsNoTurn(t *testing.T) {
	t.Parallel()
	began, answered := make(chan struct{}), make(chan struct{})
	s := &subject{work: func(ctx context.Context, _ *a2a.Request) (a2a.Result, error) {
		defer close(answered)
		return said("done"), opened(ctx, began)
	}, save: func(ctx context.Context, n int) error {
		if n > 1 {
			return nil
		}
		close(began)
		return opened(ctx, answered)
	}}
	c := newCrew(t, nil)
	run, _, execute := c.watched(t.Context(), s.deployed(t), `"snapshot_config":{"interval_seconds":0.05,"max_snapshots":1}`)
	if err := execute(); err != nil {
		t.Fatal(err)
	}
	if _, told := rows(run); told[0] != "ok" || told[len(told)-1] != "final ok" || run.PromptResponses()[0].Str("response") != "done" {
		t.Errorf("recorded %v", told)
	}
}

// TestTheAgentsOwnErrorStands whatever becomes of the last snapshot, which is recorded either way.
func TestTheAgentsOwnErrorStands(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]*subject{
		"final ok": {},
		"final failed RuntimeError": {save: func(context.Context, int) error {
			return fault.New(fault.Unavailable, "full")
		}},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s.work = func(context.Context, *a2a.Request) (a2a.Result, error) {
				return a2a.Fail("subject.tired", "no more"), nil
			}
			run, _, execute := newCrew(t, nil).watched(t.Context(), s.deployed(t), `"snapshot_config":{"at_end":true}`)
			if err := execute(); err == nil || !strings.Contains(err.Error(), "A2A task failed") || strings.Contains(err.Error(), "state at the end") {
				t.Error(err)
			}
			if _, told := rows(run); len(told) != 1 || !strings.HasPrefix(told[0], want) || run.PromptResponses()[0].Str("error_code") != "subject.tired" {
				t.Errorf("recorded %v", told)
			}
		})
	}
}

// TestACancelledStepWaitsForNoSnapshot is cancelled while one is taken, by the clock or at the end.
func TestACancelledStepWaitsForNoSnapshot(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct {
		config string
		works  bool // until it is cancelled
		want   string
	}{
		"at the end":   {`{"at_end":true}`, false, "final skipped cancelled"},
		"by the clock": {`{"interval_seconds":0.05,"at_end":false}`, true, "skipped cancelled"},
		"both":         {`{"interval_seconds":0.05}`, true, "skipped cancelled, final skipped cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			s := &subject{save: func(ctx context.Context, _ int) error {
				cancel(fault.New(fault.Canceled, "enough"))
				<-ctx.Done()
				return ctx.Err()
			}}
			if v.works {
				s.work = func(ctx context.Context, _ *a2a.Request) (a2a.Result, error) {
					<-ctx.Done()
					return said("never"), nil
				}
			}
			run, _, execute := newCrew(t, nil).watched(ctx, s.deployed(t), `"snapshot_config":`+v.config)
			began := time.Now()
			if err := execute(); !fault.Is(err, fault.Canceled) || !strings.Contains(err.Error(), "enough") {
				t.Error(err)
			}
			if _, told := rows(run); strings.Join(told, ", ") != v.want {
				t.Errorf("recorded %v, want %s", told, v.want)
			}
			if took := time.Since(began); took > 60*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestSeriesDoNotMix runs one step several times, at the same time and one after the other.
func TestSeriesDoNotMix(t *testing.T) {
	t.Parallel()
	c, s := newCrew(t, nil), &subject{}
	at := s.deployed(t)
	s.save = func(_ context.Context, n int) error {
		if n == 1 {
			return errors.New("not the first time")
		}
		return nil
	}
	step := c.step(`{"id":"ask","type":"prompt_agent","agent_name":"solver","prompt":"go","poll_interval_seconds":0.05,"snapshot_config":{}}`)
	if step.Fields.Value("snapshot_config") != nil {
		t.Fatal("an empty snapshot_config is kept")
	}
	step = c.step(`{"id":"ask","type":"prompt_agent","agent_name":"solver","prompt":"go","poll_interval_seconds":0.05,"snapshot_config":{"at_end":true}}`)
	attempt := func() (*task.Run, error) {
		run := task.NewRun(step.ID, step.Type, at, nil, nil)
		run.Instance = "inst-1"
		return run, step.Action.Execute(t.Context(), run)
	}
	run, err := attempt()
	if _, told := rows(run); err == nil || len(told) != 1 || !strings.HasPrefix(told[0], "final failed") {
		t.Fatalf("%v, %v", told, err)
	}
	var done sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for range 3 {
		done.Go(func() {
			run, err := attempt()
			all, told := rows(run)
			if err != nil || len(all) != 1 || told[0] != "final ok" || all[0].Str("source_context_id") != run.PromptResponses()[0].Str("a2a_context_id") {
				t.Errorf("%v, %v", told, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			version, _ := all[0].Int("version")
			for _, v := range []string{fmt.Sprint(version), all[0].Str("bundle_object_url"), all[0].Str("trajectory_object_url")} {
				if seen[v] {
					t.Errorf("%s is that of two attempts", v)
				}
				seen[v] = true
			}
		})
	}
	done.Wait()
}

// TestADefectInASnapshotEndsNoRun has no store of artifacts, without which none can be taken.
func TestADefectInASnapshotEndsNoRun(t *testing.T) {
	t.Parallel()
	r, s := newRig(t, nil), &subject{}
	c := &crew{rig: r}
	run, heard, execute := c.watched(t.Context(), s.deployed(t), `"snapshot_config":{"interval_seconds":0.01,"at_end":false}`)
	s.work = func(ctx context.Context, _ *a2a.Request) (a2a.Result, error) {
		return said("done"), heard.until(ctx, "failed ticker_error: ")
	}
	if err := execute(); err != nil {
		t.Fatal(err)
	}
	if _, told := rows(run); len(told) != 1 || !strings.HasPrefix(told[0], "failed ticker_error: ") {
		t.Errorf("recorded %v", told)
	}
}

func TestSnapshotConfigs(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	const whole = `{"interval_seconds": %s, "at_end": %s, "per_turn": %s, "env_id": %s, "timeout_seconds": %s, "max_snapshots": %s}`
	kept := func(values ...any) string { return fmt.Sprintf(whole, values...) }
	for text, want := range map[string]struct{ stored, refused, warned string }{
		`null`:                                {},
		`{}`:                                  {warned: "it is empty"},
		`{"interval_seconds":30}`:             {stored: kept("30", "true", "false", "null", "300", "24")},
		`{"at_end":true,"max_snapshots":3.0}`: {stored: kept("null", "true", "false", "null", "300", "3.0")},
		`{"interval_seconds":0}`:              {stored: kept("0", "true", "false", "null", "300", "24"), warned: "interval_seconds is number 0"},
		`{"per_turn":true,"at_end":false}`:    {stored: kept("null", "false", "true", "null", "300", "24"), warned: "per_turn takes snapshots between"},
		`{"timeout_seconds":0.5,"per_turn":null}`: {stored: kept("null", "true", "false", "null", "0.5", "24")},
		`{"at_end":false}`:                        {refused: "no snapshot at all"},
		`{"at_end":false,"interval_seconds":0}`:   {refused: "no snapshot at all"},
		`{"at_end":false,"interval_seconds":-5}`:  {refused: "no snapshot at all"},
		`{"timeout_seconds":0}`:                   {refused: "timeout_seconds must be greater than 0"},
		`{"timeout_seconds":true}`:                {refused: "timeout_seconds needs a number"},
		`{"max_snapshots":0}`:                     {refused: "max_snapshots must be at least 1"},
		`{"max_snapshots":1.5}`:                   {refused: "max_snapshots needs an integer"},
		`{"interval_seconds":"5"}`:                {refused: "interval_seconds needs a number"},
		`{"at_end":"no"}`:                         {refused: "at_end needs true or false"},
		`{"per_tunr":true}`:                       {refused: `unknown key "per_tunr"; it takes interval_seconds, at_end, per_turn`},
		`{"env_id":""}`:                           {refused: "env_id"},
		`[]`:                                      {refused: "snapshot_config"},
		`"x"`:                                     {refused: "snapshot_config"},
	} {
		tk, err := c.reg.ParseText("t", []byte(`[{"id":"p","type":"prompt_agent","prompt":"a","snapshot_config":`+text+`}]`), task.ParseOptions{Strict: true})
		if want.refused != "" {
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want.refused) {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		s := tk.Steps[0]
		got := ""
		if v, there := s.Fields.Get("snapshot_config"); there {
			b, err := doc.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != want.stored {
			t.Errorf("%s is stored as %s", text, got)
		}
		if warned := strings.Join(s.Kind.Warn(s), "; "); (want.warned == "") != (warned == "") || !strings.Contains(warned, want.warned) {
			t.Errorf("%s: warned of %q", text, warned)
		}
		if why := s.Kind.Unsupported(s); why != "" {
			t.Errorf("%s: %s", text, why)
		}
	}
	s := c.step(`{"id":"p","type":"prompt_agent","prompt":"a","snapshot_config":{"env_id":"mail"}}`)
	if why := s.Kind.Unsupported(s); !strings.Contains(why, "snapshot_config.env_id") {
		t.Errorf("unsupported: %q", why)
	}
}

// FuzzSnapshotConfig reads what stored tasks may hold: what is taken stores as itself.
func FuzzSnapshotConfig(f *testing.F) {
	for _, s := range []string{`{}`, `{"interval_seconds":"5","at_end":0,"max_snapshots":1.5,"x":1}`, `{"timeout_seconds":1e400}`, `{"max_snapshots":1e300}`, `[]`, `"x"`, `{"interval_seconds":-1,"env_id":5}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		reg, err := task.NewRegistry(agents.Types(agents.Deps{})...)
		if err != nil {
			t.Fatal(err)
		}
		parse := func(config any) *task.Step {
			d := doc.Of("id", "t", "type", "task", "steps", []any{doc.Of("id", "p", "type", "prompt_agent", "prompt", "a", "prompt_id", "q", "snapshot_config", config)})
			tk, err := reg.ParseTask(d, task.ParseOptions{Stored: true})
			if err != nil {
				t.Fatal(err)
			}
			return tk.Steps[0]
		}
		v, err := doc.Parse([]byte(s), doc.Options{})
		if err != nil {
			return
		}
		step := parse(v)
		if step.Problem != nil {
			return
		}
		first := step.Fields.Value("snapshot_config")
		again := parse(first)
		if again.Problem != nil || doc.Canonical(again.Fields.Value("snapshot_config")) != doc.Canonical(first) {
			t.Errorf("%s is stored as %s, then %v, %v", s, doc.Canonical(first), again.Fields, again.Problem)
		}
	})
}
