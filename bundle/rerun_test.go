package bundle_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"agentenv/bundle"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/task"
)

// endedAs rewrites how a run ended on record.
func (k *kit) endedAs(t testing.TB, r *bundle.Run, status, class string) {
	t.Helper()
	set := doc.Of("status", status, "outcome_class", class, "error", "the engine\ndoes not answer")
	if n, err := k.docs.Update(t.Context(), "task_instances", document.By("instance_id", r.Instance), document.Update{Set: set}, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
}

var madeUpIDs = regexp.MustCompile(`[0-9a-f]{32}|(@local/~/p/\w+)-[a-z0-9]{8}`)

// again looks up what runs again and runs it; nil when there is nothing.
func (k *kit) again(t testing.TB, dir string, sel bundle.Selection, r bundle.Rerun, want ...string) *bundle.Summary {
	t.Helper()
	a, err := k.runner.Again(t.Context(), k.parse(t, dir), sel, task.NewInstances(k.docs), r)
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(a.Lines))
	for i, l := range a.Lines {
		lines[i] = madeUpIDs.ReplaceAllString(l, "$1-X")
	}
	wantLines(t, lines, want...)
	if len(a.Tasks()) == 0 {
		return nil
	}
	p, _ := k.write(t, dir, bundle.Selection{Tasks: a.Tasks()})
	return p.Run(t.Context(), k.options(bundle.RunOptions{Again: a}))
}

func rerun(classes ...task.Class) bundle.Rerun { return bundle.Rerun{Classes: classes} }

func TestRerun(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"tasks/a.json": "[" + score("1") + "]", "tasks/b.json": "[" + score("0.5") + "]",
		"tasks/c.json": `[{"id":"l","type":"load_artifact","artifacts":[],"sandbox_name":"c"}]`, "tasks/idle.json": "[" + score("1") + "]", "evals/e.toml": `tasks = ["a", "b", "c"]`})
	k.again(t, dir, bundle.Selection{}, rerun(task.Infrastructure), "Nothing to rerun: no earlier invocation of this bundle is on record.")
	p, _ := k.write(t, dir, bundle.Selection{})
	first := p.Run(t.Context(), k.options(bundle.RunOptions{Times: 3, Parallel: 1}))
	if len(first.Runs) != 9 {
		t.Fatal(first.Text())
	}
	k.again(t, dir, bundle.Selection{}, rerun(task.Infrastructure, task.Judge), "Nothing to rerun: of 9 runs in group -X, none ended as one of infrastructure, judge.")
	k.endedAs(t, first.Runs[0], "failed", "infrastructure")
	k.endedAs(t, first.Runs[1], "failed", "infrastructure")
	k.endedAs(t, first.Runs[4], "failed", "judge")
	k.endedAs(t, first.Runs[5], "running", "")

	// One task of the selection.
	sum := k.again(t, dir, bundle.Selection{Tasks: []string{"b"}}, bundle.Rerun{Classes: []task.Class{task.Judge, task.Infrastructure}, Group: first.RunGroup},
		"Rerunning 1 of 3 runs in group -X, which ended as one of judge, infrastructure:",
		"  tasks/b.json: judge, instance @local/~/p/b-X: the engine does not answer",
		"  tasks/b.json: instance @local/~/p/b-X has not ended, and is left alone (`agent-env run --resume` goes on with it if its process is gone)")
	if len(sum.Runs) != 1 || sum.Runs[0].Path != "tasks/b.json" || sum.Runs[0].Number != 0 {
		t.Error(sum.Text())
	}
	// That was the last invocation; by its group the first one is found still, through an eval as well.
	k.again(t, dir, bundle.Selection{}, rerun(task.Infrastructure), "Nothing to rerun: of 1 run in group -X, none ended as infrastructure.")
	sum = k.again(t, dir, bundle.Selection{Evals: []string{"e"}}, bundle.Rerun{Classes: []task.Class{task.Infrastructure, task.Configuration}, Group: first.RunGroup},
		"Rerunning 5 of 9 runs in group -X, which ended as one of infrastructure, configuration:",
		"  tasks/a.json: infrastructure, instance @local/~/p/a-X: the engine does not answer",
		"  tasks/a.json: infrastructure, instance @local/~/p/a-X: the engine does not answer",
		"  tasks/b.json: instance @local/~/p/b-X has not ended, and is left alone (`agent-env run --resume` goes on with it if its process is gone)",
		`  tasks/c.json: configuration, instance @local/~/p/c-X: no sandbox named "c"; no sandbox is deployed before this step`,
		`  tasks/c.json: configuration, instance @local/~/p/c-X: no sandbox named "c"; no sandbox is deployed before this step`,
		`  tasks/c.json: configuration, instance @local/~/p/c-X: no sandbox named "c"; no sandbox is deployed before this step`)
	var ran []string
	for _, r := range sum.Runs {
		ran = append(ran, r.Label()+": "+string(r.Outcome))
	}
	wantLines(t, ran, "tasks/a.json run 1: passed", "tasks/a.json run 2: passed", "tasks/c.json run 1: failed", "tasks/c.json run 2: failed", "tasks/c.json run 3: failed")
	// What ran again is the last invocation now: its own failures can run again.
	if sum = k.again(t, dir, bundle.Selection{Tasks: []string{"a"}}, rerun(task.Passed), "Rerunning 2 of 2 runs in group -X, which ended as passed:",
		"  tasks/a.json: passed, instance @local/~/p/a-X", "  tasks/a.json: passed, instance @local/~/p/a-X"); len(sum.Runs) != 2 {
		t.Error(sum.Text())
	}
	_, err := k.runner.Again(t.Context(), k.parse(t, dir), bundle.Selection{}, task.NewInstances(k.docs), bundle.Rerun{Classes: task.Classes(), Group: "nosuch"})
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "--group 'nosuch': no run of this bundle's tasks in that group") {
		t.Errorf("%v", err)
	}
	if _, err = k.runner.Again(t.Context(), k.parse(t, dir), bundle.Selection{Tasks: []string{"nosuch"}}, task.NewInstances(k.docs), rerun(task.Failed)); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

// TestRerunOfWhatNeverStarted stops an invocation of which most runs never began: they have no record of their own, and run again all the same.
func TestRerunOfWhatNeverStarted(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"tasks/a.json": `[{"id":"w","type":"wait"}]`, "tasks/b.json": "[" + score("1") + "]"})
	p, _ := k.write(t, dir, bundle.Selection{})
	signals := make(chan os.Signal, 2)
	var out, notes bytes.Buffer
	pr := &signalAt{Lines: bundle.NewLines(&out, &notes), at: "w", ch: signals}
	sum := p.Run(t.Context(), k.options(bundle.RunOptions{Parallel: 1, Times: 2, Progress: pr, Signals: signals}))
	tally := sum.Tally().Total
	if tally.Runs != 4 || tally.Classes[task.Cancelled] != 4 || tally.Counted != 0 {
		t.Errorf("%+v", tally)
	}
	if text := sum.Text(); !strings.Contains(text, "  no run counts\n  runs: 4; left out: 4 cancelled\n") {
		t.Error(text)
	}
	sum = k.again(t, dir, bundle.Selection{Tasks: []string{"b"}}, rerun(task.Cancelled), "Rerunning 2 of 2 runs in group -X, which ended as cancelled:", "  tasks/b.json: cancelled, 2 runs without a record: never started, or removed since")
	if len(sum.Runs) != 2 || sum.Tally().Total.Passes != 2 {
		t.Error(sum.Text())
	}
}

// TestInvocationThatCannotBeRecorded costs the runs nothing.
func TestInvocationThatCannotBeRecorded(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"tasks/a.json": "[" + score("1") + "]"})
	p, _ := k.write(t, dir, bundle.Selection{})
	if err := k.docs.EnsureIndex(t.Context(), "bundle_invocations", document.Index{Fields: []string{"id"}, Unique: true}); err != nil {
		t.Fatal(err)
	}
	var out, notes bytes.Buffer
	for range 2 {
		if sum := p.Run(t.Context(), k.options(bundle.RunOptions{Progress: bundle.NewLines(&out, &notes)})); sum.ExitCode() != 0 || sum.Runs[0].Outcome != bundle.Passed {
			t.Error(sum.Text())
		}
	}
	if n := strings.Count(notes.String(), "--rerun will not know of this invocation"); n != 1 {
		t.Errorf("the notes are %q", notes.String())
	}
}
