package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
)

// The environment of a process that runs one step: the folder of its database and its deeds, and whether it dies before it answers.
const (
	workerDir   = "TASK_TEST_WORKER_DIR"
	workerMutes = "TASK_TEST_WORKER_MUTE"
)

// workOnce runs the call on standard input and answers on standard output.
func workOnce(dir string) int {
	var call StepCall
	var done StepDone
	err := json.NewDecoder(os.Stdin).Decode(&call)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		var docs *sqlite.Store
		if docs, err = sqlite.New(sqlite.Options{Path: filepath.Join(dir, "docs.db")}); err == nil {
			defer docs.Close()
			reg, _ := NewRegistry(doing(farDeeds(dir)))
			w := NewStepWorker(NewEngine(reg, docs, nil, nil), NewTasks(reg, docs, nil, nil))
			done, err = w.Run(ctx, call, w.Beat(ctx, call))
		}
	}
	if os.Getenv(workerMutes) != "" {
		return 9
	}
	if errors.Is(err, ErrFenced) {
		return 7
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(done)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func doing(d deeds) *StepType {
	return &StepType{Name: "do", FailsTask: true, Repeatable: true, Parse: func(id string, _ *doc.Object) (Action, *doc.Object, error) { return action{d[id]}, nil, nil }}
}

// begun notes in a file that a deed began and returns how often it has.
func begun(dir, id string) int {
	f, err := os.OpenFile(filepath.Join(dir, "began-"+id), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString("x")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		panic(err)
	}
	return times(dir, id)
}

func times(dir, id string) int {
	text, _ := os.ReadFile(filepath.Join(dir, "began-"+id))
	return len(text)
}

// farDeeds are the same in every process.
func farDeeds(dir string) deeds {
	leave := func(id string, more func(ctx context.Context, r *Run, at int) error) func(context.Context, *Run) error {
		return func(ctx context.Context, r *Run) error {
			at := begun(dir, id)
			r.Append(doc.Of("step", id), "list")
			return more(ctx, r, at)
		}
	}
	fine := func(context.Context, *Run, int) error { return nil }
	return deeds{
		"a": leave("a", func(_ context.Context, r *Run, _ int) error {
			return r.AddSandbox(Sandbox{Name: "a", ID: "id-a", Mode: "vm", Type: "local"})
		}),
		"b": leave("b", fine),
		"c": leave("c", func(context.Context, *Run, int) error { return fault.New(fault.Unavailable, "no luck") }),
		"d": leave("d", func(_ context.Context, _ *Run, at int) error {
			if at == 1 {
				return fault.New(fault.Internal, "not yet")
			}
			return nil
		}),
		"e": leave("e", func(_ context.Context, r *Run, _ int) error {
			if n := len(r.Sandboxes()); n != 1 {
				return fault.New(fault.Internal, "it sees %d sandboxes", n)
			}
			return nil
		}),
		"fatal": leave("fatal", func(context.Context, *Run, int) error {
			return fault.New(fault.Invalid, "bad input").WithClass("ValueError")
		}),
		"hangs": leave("hangs", func(ctx context.Context, r *Run, at int) error {
			if at > 1 {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}),
		"secret": leave("secret", func(_ context.Context, r *Run, _ int) error { r.Set("sk-raw", "litellm_api_key"); return nil }),
	}
}

// processes is a StepRunner that starts a process for each call; a process that dies is no answer, and the call is made again.
type processes struct {
	dir  string
	mute int // how many processes of each call die before they answer; of three, none does

	mu   sync.Mutex
	made []StepCall
	pids chan int // hears of each process; nil: nobody does
}

func (p *processes) Run(ctx context.Context, call StepCall, beat Beat) (StepDone, error) {
	p.mu.Lock()
	p.made = append(p.made, call)
	p.mu.Unlock()
	var err error
	for try := range 3 {
		var done StepDone
		if done, err = p.once(ctx, call, try < p.mute); err == nil || errors.Is(err, ErrFenced) {
			return done, err
		}
	}
	return StepDone{}, err
}

func (p *processes) once(ctx context.Context, call StepCall, mute bool) (done StepDone, err error) {
	text, err := json.Marshal(call)
	if err != nil {
		return done, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerDir+"="+p.dir)
	if mute {
		cmd.Env = append(cmd.Env, workerMutes+"=1")
	}
	cmd.Stdin = bytes.NewReader(text)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return done, err
	}
	if p.pids != nil {
		p.pids <- cmd.Process.Pid
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	if err := cmd.Wait(); err != nil {
		if cmd.ProcessState.ExitCode() == 7 {
			return done, ErrFenced
		}
		return done, fmt.Errorf("%w: %s", err, errs.String())
	}
	return done, json.Unmarshal(out.Bytes(), &done)
}

// farRig is a rig whose steps other processes run, and a task that is stored.
func farRig(t *testing.T, steps string) (*rig, *processes, *Task) {
	t.Helper()
	dir := t.TempDir()
	docs, err := sqlite.New(sqlite.Options{Path: filepath.Join(dir, "docs.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { docs.Close() })
	reg, err := NewRegistry(doing(farDeeds(dir)))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{tb: t, docs: docs, reg: reg, engine: NewEngine(reg, docs, nil, nil)}
	parsed, err := reg.ParseText("t", []byte(steps), ParseOptions{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := NewTasks(reg, docs, nil, nil).Create(t.Context(), parsed)
	if err != nil {
		t.Fatal(err)
	}
	p := &processes{dir: dir}
	r.engine.Steps = p
	return r, p, stored
}

const farSteps = `[{"id":"a","type":"do","depends_on":[]},{"id":"b","type":"do","depends_on":[]},
	{"id":"c","type":"do","depends_on":[{"task_step_id":"a"}],"fail_task_on_error":false},
	{"id":"d","type":"do","depends_on":[{"task_step_id":"b"}],"retry_config":{"retry_from_step_id":"b","max_retries":1}},{"id":"e","type":"do"}]`

// TestStepsInOtherProcesses schedules a run here whose steps are run by processes of their own, side by side, with a tolerated failure and a
// retry: it ends as a run in one process does. Some of the processes die before they can
// answer, or all do, which changes nothing: what they committed is found.
func TestStepsInOtherProcesses(t *testing.T) {
	t.Parallel()
	for mute := range 4 {
		t.Run(fmt.Sprint(mute, " die"), func(t *testing.T) {
			t.Parallel()
			r, p, task := farRig(t, farSteps)
			p.mute = mute
			res := r.run(task, Options{Instance: "t-far"})
			if res.Status != "completed" || res.Class != Infrastructure {
				t.Fatalf("%s, %s: %v", res.Status, res.Class, res.Err)
			}
			r.sound(res)
			var list []string
			for _, v := range metadata(res).Arr("list") {
				list = append(list, v.(*doc.Object).Str("step"))
			}
			slices.Sort(list)
			if got := strings.Join(list, ""); got != "abcde" {
				t.Errorf("the steps left %s", got)
			}
			var failures []string
			for _, f := range res.Failures {
				failures = append(failures, fmt.Sprint(f.StepID, f.Retried, f.Error))
			}
			slices.Sort(failures)
			wantFailures, want := "cfalseno luck|dtruenot yet", map[string]int{"a": 1, "b": 2, "c": 1, "d": 2, "e": 1}
			if mute > 0 { // the failure without a row was lost, so the call was made again
				wantFailures, want["b"] = "cfalseno luck", 1
			}
			if strings.Join(failures, "|") != wantFailures {
				t.Errorf("failures %v", failures)
			}
			if n := len(r.instance("t-far").Completed); n != 5 {
				t.Errorf("%d steps are completed", n)
			}
			rows := map[string]int{}
			for _, row := range r.rows("t-far") {
				rows[row.StepID]++
			}
			for id := range want {
				if n := times(p.dir, id); rows[id] != 1 || n != want[id] {
					t.Errorf("%s: %d rows, began %d times, want %d", id, rows[id], n, want[id])
				}
			}
			for _, call := range p.made {
				if call.Instance != "t-far" || call.View.Instance != "t-far" || call.View.Seq == 0 || call.Attempt == 0 {
					t.Errorf("%+v", call)
				}
			}
		})
	}
}

// TestAStepIsKilledInTheMiddle kills the process that runs a step; the step is run again, and its row is there once.
func TestAStepIsKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	r, p, task := farRig(t, `[{"id":"a","type":"do"},{"id":"hangs","type":"do"},{"id":"b","type":"do"}]`)
	p.pids = make(chan int, 16)
	ended := make(chan *Result, 1)
	go func() {
		res, _ := r.engine.Run(context.Background(), task, Options{Instance: "t-killed"})
		ended <- res
	}()
	<-p.pids
	pid := <-p.pids
	for deadline := time.Now().Add(time.Minute); times(p.dir, "hangs") == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the step did not begin")
		}
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	res := <-ended
	if res == nil || res.Status != "completed" || times(p.dir, "hangs") != 2 || times(p.dir, "a") != 1 {
		t.Fatalf("%+v, began %d times", res, times(p.dir, "hangs"))
	}
	r.sound(res)
	rows := 0
	for _, row := range r.rows("t-killed") {
		if row.StepID == "hangs" {
			rows++
		}
	}
	if rows != 1 {
		t.Errorf("%d rows", rows)
	}
}

// TestAStepElsewhereFailsOrIsCancelled: what such a step left is in the record of the run, as of one that ran here.
func TestAStepElsewhereFailsOrIsCancelled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step, status string
		class        Class
		text         string
		left         int // items in the record; what a cancelled step left is in the result alone
	}{
		{"fatal", "failed", Configuration, "failed at step 'fatal': ValueError: bad input", 2},
		{"secret", "failed", Configuration, "it keeps a secret in memory (context.metadata.litellm_api_key)", 2},
		{"hangs", "cancelled", Cancelled, "enough", 1},
	} {
		t.Run(c.step, func(t *testing.T) {
			t.Parallel()
			r, p, task := farRig(t, `[{"id":"a","type":"do"},{"id":"`+c.step+`","type":"do"},{"id":"b","type":"do"}]`)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var stop sync.WaitGroup
			if c.status == "cancelled" {
				stop.Go(func() {
					for ; times(p.dir, c.step) == 0 && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
					}
					cancel(fault.New(fault.Canceled, "enough"))
				})
			}
			res, err := r.engine.Run(ctx, task, Options{Instance: "t-ends"})
			cancel(nil)
			stop.Wait()
			if res == nil || res.Status != c.status || res.Class != c.class || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("%+v %v", res, err)
			}
			if in := r.instance("t-ends"); in.Status != c.status || strings.Contains(doc.Canonical(in.Document), "sk-raw") || len(in.Context.Obj("metadata").Arr("list")) != c.left || len(metadata(res).Arr("list")) != 2 {
				t.Errorf("the record: %s", show(in.Document))
			}
			for _, row := range r.rows("t-ends") {
				if row.StepID == c.step {
					t.Errorf("there is a row of it: %+v", row)
				}
			}
		})
	}
}

// TestCallsThatAreRefused makes calls by hand: of an attempt that was taken back, of a run that has ended, of one that is cancelled.
func TestCallsThatAreRefused(t *testing.T) {
	t.Parallel()
	r, _, task := farRig(t, farSteps)
	w := NewStepWorker(r.engine, NewTasks(r.reg, r.docs, nil, nil))
	var call StepCall
	held, release := make(chan struct{}), make(chan struct{})
	r.engine.Steps = stepFunc(func(ctx context.Context, c StepCall, beat Beat) (StepDone, error) {
		if c.StepID == "e" {
			call = c
			close(held)
			<-release
		}
		return w.Run(ctx, c, beat)
	})
	ended := make(chan *Result, 1)
	go func() {
		res, _ := r.engine.Run(context.Background(), task, Options{Instance: "t-refused"})
		ended <- res
	}()
	<-held
	early := call
	early.StepID, early.Epoch = "d", 0 // undone by the retry since
	late := call
	late.Generation++
	unknown := call
	unknown.StepID = "nothing"
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx  context.Context
		call StepCall
		beat Beat
		want func(StepDone, error) bool
	}{
		"taken back":         {t.Context(), early, nil, func(_ StepDone, err error) bool { return errors.Is(err, ErrFenced) }},
		"another generation": {t.Context(), late, nil, func(_ StepDone, err error) bool { return errors.Is(err, ErrFenced) }},
		"no such step":       {t.Context(), unknown, nil, func(_ StepDone, err error) bool { return fault.Is(err, fault.NotFound) }},
		"ended context":      {stopped, call, nil, func(d StepDone, err error) bool { return err != nil || d.Class == Cancelled }},
		"committed already": {t.Context(), StepCall{Instance: call.Instance, StepID: "a", Generation: call.Generation, Epoch: call.Epoch, Attempt: 1, View: call.View}, nil,
			func(d StepDone, err error) bool { return err == nil && d.Class == Passed && d.Seq > 0 }},
	} {
		if done, err := w.Run(c.ctx, c.call, c.beat); !c.want(done, err) {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
	}
	if err := w.Beat(t.Context(), call)(Progress{}); err != nil {
		t.Errorf("a call that counts: %v", err)
	}
	if err := w.Beat(t.Context(), early)(Progress{}); !errors.Is(err, ErrFenced) {
		t.Errorf("a call that was taken back: %v", err)
	}
	close(release)
	res := <-ended
	if res == nil || res.Status != "completed" {
		t.Fatalf("%+v", res)
	}
	r.sound(res)
	if _, err := w.Run(t.Context(), call, nil); !errors.Is(err, ErrFenced) {
		t.Errorf("a run that has ended: %v", err)
	}
	if heads, err := r.docs.Count(t.Context(), collHeads, document.By("instance_id", "t-refused")); err != nil || heads != 0 {
		t.Errorf("%d heads, %v", heads, err)
	}
}

type stepFunc func(context.Context, StepCall, Beat) (StepDone, error)

func (f stepFunc) Run(ctx context.Context, c StepCall, b Beat) (StepDone, error) { return f(ctx, c, b) }

// TestASecretItselfIsNotPassed refuses a run, before anything is recorded, whose steps would need a secret that only this process has; a
// reference is passed.
func TestASecretItselfIsNotPassed(t *testing.T) {
	t.Parallel()
	r, p, task := farRig(t, `[{"id":"a","type":"do"}]`)
	over := func(key string) Options {
		return Options{Metadata: doc.Of("user_overrides", doc.Of("litellm_api_key", key))}
	}
	if res, err := r.engine.Run(t.Context(), task, over("sk-raw")); res != nil || !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "sk-raw") {
		t.Errorf("%+v, %v", res, err)
	}
	if n, err := r.docs.Count(t.Context(), collInstances, nil); n != 0 || err != nil {
		t.Errorf("%d instances, %v", n, err)
	}
	if res, err := r.engine.Run(t.Context(), task, over("secret:key")); err != nil || res.Status != "completed" || !slices.Equal(p.made[0].Secrets, []string{"secret:key"}) {
		t.Errorf("%+v, %v, %v", res, err, p.made)
	}
}

// TestTheSameRunByReference runs twenty steps with two branches and a retry through a worker in this process: the end is that of a run whose
// steps are views in memory.
func TestTheSameRunByReference(t *testing.T) {
	t.Parallel()
	for range 3 {
		var c tally
		d, text := twentySteps(&c)
		r := newRig(t, d)
		tasks := NewTasks(r.reg, r.docs, nil, nil)
		parsed, err := r.reg.ParseText("t", []byte(text), ParseOptions{Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		task, err := tasks.Create(t.Context(), parsed)
		if err != nil {
			t.Fatal(err)
		}
		r.engine.Steps = NewStepWorker(r.engine, tasks)
		res := r.run(task, Options{Instance: "t-ref"})
		if res.Status != "completed" || res.Class != Passed || len(metadata(res).Arr("list")) != 20 || len(Sandboxes(res.Context)) != 4 {
			t.Fatalf("%s %v: %d items, %d sandboxes", res.Status, res.Err, len(metadata(res).Arr("list")), len(Sandboxes(res.Context)))
		}
		r.sound(res)
	}
}

// TestAStepOfARunThatWasTakenOver is refused when another process went on with the run meanwhile; what that one did stands.
func TestAStepOfARunThatWasTakenOver(t *testing.T) {
	t.Parallel()
	r, p, task := farRig(t, `[{"id":"a","type":"do"},{"id":"b","type":"do"}]`)
	w := NewStepWorker(r.engine, NewTasks(r.reg, r.docs, nil, nil))
	held, release := make(chan struct{}), make(chan struct{})
	var refused error
	r.engine.Steps = stepFunc(func(ctx context.Context, c StepCall, beat Beat) (StepDone, error) {
		if c.StepID == "b" {
			close(held)
			<-release
		}
		done, err := w.Run(ctx, c, beat)
		refused = errors.Join(refused, err)
		return done, err
	})
	ended := make(chan *Result, 1)
	go func() {
		res, _ := r.engine.Run(context.Background(), task, Options{Instance: "t-over"})
		ended <- res
	}()
	<-held
	unowned(t, r.docs, "t-over")
	res, err := NewEngine(r.reg, r.docs, nil, nil).Resume(t.Context(), task, "t-over", Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.sound(res)
	close(release)
	if first := <-ended; first == nil || !errors.Is(refused, ErrFenced) || times(p.dir, "b") != 1 {
		t.Errorf("%+v, %v, b began %d times", first, refused, times(p.dir, "b"))
	}
	if in := r.instance("t-over"); in.Status != "completed" || in.Class != Passed || len(in.Completed) != 2 {
		t.Errorf("%+v", in)
	}
}
