package verify

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/sandbox/place"
	"agentenv/store/doc"
	"agentenv/task"
)

// managed returns a manager over one provider.
func managed(t *testing.T, p sandbox.Provider) *sandbox.Manager {
	t.Helper()
	m, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{p}, Default: p.Name(), Ledger: sandbox.OpenLedger(filepath.Join(t.TempDir(), "s.db"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// verified runs a verify_sandbox step with the fields on the sandbox of that id.
func verified(t *testing.T, m *sandbox.Manager, id, fields string) (*doc.Object, error) {
	t.Helper()
	s, err := parseStep(t, `{"id":"v","type":"verify_sandbox","sandbox_name":"box","verifier_id":"v",`+fields+`}`)
	if err != nil {
		t.Fatal(err)
	}
	return verifiedStep(t, m, id, s)
}

func verifiedStep(t *testing.T, m *sandbox.Manager, id string, s *task.Step) (*doc.Object, error) {
	t.Helper()
	r := task.NewRun(s.ID, s.Type, nil, nil, nil)
	if err := r.AddSandbox(task.Sandbox{Name: "box", ID: id, Type: m.Known()[0], Mode: "vm"}); err != nil {
		t.Fatal(err)
	}
	a := s.Action.(*verifySandbox)
	a.deps.Sandboxes = m
	err := a.Execute(t.Context(), r)
	out, _ := r.Metadata("verifications", "v").(*doc.Object)
	return out, err
}

// box makes a local vm sandbox that holds h.txt.
func box(t *testing.T) (*sandbox.Manager, sandbox.Info) {
	t.Helper()
	state := t.TempDir()
	host, err := local.New(local.Options{StateRoot: state, Root: filepath.Join(state, "sandboxes"), Engine: &engine.Lazy{}})
	if err != nil {
		t.Fatal(err)
	}
	m := managed(t, host)
	machine, err := m.Deploy(t.Context(), "", sandbox.Spec{Name: "box", Mode: sandbox.VM}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	info := machine.Info()
	t.Cleanup(func() { os.RemoveAll(info.WorkDir) })
	if err := os.WriteFile(filepath.Join(info.WorkDir, "h.txt"), []byte("hello 5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(info.WorkDir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	return m, info
}

func TestCriteria(t *testing.T) {
	m, info := box(t)
	const contains, exists, shell = `{"type":"probe_file_contains","paths":["h.txt"],`, `{"type":"probe_file_exists",`, `{"type":"bash_cmd_succeeds",`
	for _, c := range []struct {
		criterion, base string
		pass            bool
		why             string
	}{
		{contains + `"expected":"\\d"}`, "/app", true, `contains '\\d'`},
		{contains + `"expected":"it's"}`, "/app", false, `does not contain "it's"`},
		{contains + `"expected":"("}`, "/app", false, `invalid regex pattern '(': missing ), unterminated subpattern at position 0`},
		{contains + `"expected":5}`, "/app", false, "evaluator error: `expected` must be a string, but is of the type number"},
		{contains + `"expected":false,"value":"h"}`, "/app", false, "evaluator error: `expected` must be a string, but is of the type boolean"},
		{contains + `"expected":"","value":"zz"}`, "/app", false, `does not contain 'zz'`},
		{contains + `"expected":null,"value":"hello"}`, "/app", true, `contains 'hello'`},
		{contains + `"value":["h"]}`, "/app", false, "evaluator error: `value` must be a string, but is of the type array"},
		{contains + `"expected":""}`, "/app", true, `contains ''`},
		{contains + `"expected":"h"}`, "", false, "could not read h.txt: "},
		{`{"type":"probe_file_contains","paths":["../etc/passwd"]}`, "/app", false, "could not read ../etc/passwd: the path leaves base_dir /app"},
		{exists + `"paths":["h.txt"]}`, "/app", true, "All paths exist"},
		{exists + `"paths":["../h.txt"]}`, "/app/sub", true, "All paths exist"},
		{exists + `"paths":["/app/h.txt","/"]}`, "", true, "All paths exist"},
		{exists + `"paths":["h.txt"]}`, "", false, "Missing: ['h.txt']"},
		{exists + `"paths":["h.txt"]}`, "app", false, "Missing: ['h.txt']"},
		{exists + `"paths":["h.txt"]}`, "/app/none", false, "Missing: ['h.txt']"},
		{exists + `"paths":"h.txt"}`, "/app", false, "evaluator error: `paths` must be a list of strings, but is of the type string"},
		{exists + `"paths":["h.txt",5]}`, "/app", false, "evaluator error: `paths` must be a list of strings, but one of them is of the type number"},
		{exists + `"paths":null}`, "/app", false, "no paths specified"},
		{`{"type":"probe_dir_exists","paths":["../etc"]}`, "/app", false, "the path '../etc' leaves base_dir /app"},
		{`{"type":"probe_dir_exists","paths":{}}`, "/app", false, "evaluator error: `paths` must be a list"},
		{shell + `"bash_cmd":"  "}`, "/app", false, "no bash_cmd"},
		{shell + `"bash_cmd":true}`, "/app", false, "evaluator error: `bash_cmd` must be a string, but is of the type boolean"},
		{shell + `"bash_cmd":"true"}`, "/app", true, "exit=0"},
		{shell + `"bash_cmd":"true"}`, "/app/none", false, "is not in"},
	} {
		got, err := verified(t, m, info.ID, `"base_dir":"`+c.base+`","criteria":[`+c.criterion+`]`)
		if err != nil {
			t.Errorf("%s: %v", c.criterion, err)
			continue
		}
		row := got.Arr("results")[0].(*doc.Object)
		if row.Value("result") != c.pass || !strings.Contains(row.Str("justification"), c.why) || (got.Value("score") == doc.Number("1.0")) != c.pass {
			t.Errorf("%s in %q: %s, want %t %q", c.criterion, c.base, doc.Canonical(row), c.pass, c.why)
		}
	}
	for criterion, why := range map[string]string{
		`{}`: "type None not handled by verify_sandbox", `{"type":"x"}`: "type 'x' not handled by verify_sandbox", `{"type":5}`: "type 5 not handled by verify_sandbox",
	} {
		got, err := verified(t, m, info.ID, `"criteria":[`+criterion+`]`)
		if err != nil {
			t.Fatal(err)
		}
		if row := got.Arr("results")[0].(*doc.Object); row.Value("skipped") != true || row.Str("justification") != why {
			t.Errorf("%s: %s", criterion, doc.Canonical(row))
		}
	}
}

func TestWeightsThatAreNoNumbersFailTheStep(t *testing.T) {
	m, info := box(t)
	for weight, fails := range map[string]bool{`null`: true, `"heavy"`: true, `[]`: true, `2`: false, `"2"`: false, `true`: false} {
		for _, how := range aggregators {
			criteria := `"score_aggregator":"` + how + `","criteria":[{"type":"x","weight":null},{"type":"probe_file_exists","paths":["h.txt"],"weight":` + weight + `}]`
			_, err := verified(t, m, info.ID, criteria)
			if want := fails && how == WeightedAverage; (err != nil) != want || want && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "criterion 1 has the weight")) {
				t.Errorf("%s with the weight %s: %v", how, weight, err)
			}
		}
	}
}

func TestSearchesEndWithTheProbe(t *testing.T) {
	for seconds, want := range map[float64]time.Duration{0.2: 200 * time.Millisecond, 120: matchLimit, 1e300: matchLimit} {
		a := &prober{verifySandbox: &verifySandbox{seconds: seconds}}
		if got := min(matchLimit, a.limit()); got != want {
			t.Errorf("%v s: %s, want %s", seconds, got, want)
		}
	}
	a := &prober{verifySandbox: &verifySandbox{seconds: 0.2}}
	if v := a.search(strings.Repeat("a", 60)+"!", `^(a|aa)+$`); v.pass || !strings.Contains(v.why, "took longer than 200ms") {
		t.Errorf("%+v", v)
	}
}

func TestASandboxThatWentAwayIsNotGraded(t *testing.T) {
	m, info := box(t)
	const missing = `"criteria":[{"type":"probe_file_exists","paths":["none"]}]`
	if got, err := verified(t, m, info.ID, missing); err != nil || got.Value("score") != doc.Number("0.0") {
		t.Errorf("while it is there: %v", err)
	}
	if err := os.RemoveAll(info.WorkDir); err != nil {
		t.Fatal(err)
	}
	if got, err := verified(t, m, info.ID, missing); !fault.Is(err, fault.Unavailable) || got != nil || !strings.Contains(err.Error(), "went away") {
		t.Errorf("once it is gone: %v", err)
	}
}

// lost is a sandbox whose place does not answer; it is provider, machine and place in one.
type lost struct {
	sandbox.Provider
	place.Place
}

var errLost = fault.New(fault.Unavailable, "the engine is away")

func (lost) Name() string                                              { return "lost" }
func (lost) Attach(context.Context, string) (sandbox.Machine, error)   { return lostMachine{}, nil }
func (lost) Close() error                                              { return nil }
func (lost) String() string                                            { return "host of lost" }
func (lost) Restore(text string) string                                { return text }
func (lost) Stat(context.Context, string, bool) (place.Entry, error)   { return place.Entry{}, errLost }
func (lost) Exec(context.Context, place.Cmd) (*place.Result, error)    { return nil, errLost }
func (lost) Get(context.Context, place.GetRequest) (place.Tree, error) { return nil, errLost }

type lostMachine struct{ sandbox.Machine }

func (lostMachine) Host() place.Place { return lost{} }
func (lostMachine) Close() error      { return nil }

func TestAPlaceThatDoesNotAnswerFailsTheStep(t *testing.T) {
	m := managed(t, lost{})
	for _, criterion := range []string{
		`{"type":"probe_file_exists","paths":["a"]}`, `{"type":"probe_dir_exists","paths":["a"]}`,
		`{"type":"probe_file_contains","paths":["a"]}`, `{"type":"bash_cmd_succeeds","bash_cmd":"true"}`,
	} {
		if got, err := verified(t, m, "lost-1", `"criteria":[`+criterion+`]`); !fault.Is(err, fault.Unavailable) || got != nil || !strings.Contains(err.Error(), "criterion 0 cannot be checked") {
			t.Errorf("%s: %v", criterion, err)
		}
	}
}

func TestRepr(t *testing.T) {
	for in, want := range map[string]string{`a\d`: `'a\\d'`, "it's": `"it's"`, `it's "x"`: `'it\'s "x"'`, "a\n\t\x01é\u2028": `'a\n\t\x01é\u2028'`} {
		if got := repr(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := []string{repr(nil), repr(true), repr(doc.Int(5))}; !slices.Equal(got, []string{"None", "True", "5"}) {
		t.Error(got)
	}
}
