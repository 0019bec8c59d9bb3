// Package code holds the step that runs a script artifact in a sandbox and keeps its JSON result.
package code

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // for the runner
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/place"
	"agentenv/steps/target"
	"agentenv/store/doc"
	"agentenv/task"
)

//go:embed runner.py
var runner []byte

const (
	defaultAgent   = "default-agent"
	defaultSeconds = 600
	keptStderr     = 1 << 20
	maxOutput      = 50 << 20
	loggedOutput   = 64 << 10
	timedOut       = 124 // the runner's exit code for a script that took too long
	// reserve is what the runner itself may take beyond the script's own limit, its grace period included.
	reserve = 15 * time.Second
)

// The class names under which failures of this step are recorded.
const (
	executionError  = "RunCodeExecutionError"
	validationError = "RunCodeValidationError"
)

// Deps is what this step acts with.
type Deps struct {
	Sandboxes *sandbox.Manager
	Artifacts *artifact.Store
}

// Types returns the step types of this package.
func Types(d Deps) []*task.StepType {
	return []*task.StepType{{
		Name:    "run_code",
		Summary: "Run a Python function of an artifact in a sandbox, or where an agent works, and keep its JSON result",
		Family:  "code",
		Doc: "Calls `entrypoint(input)` of the script with python3 in the sandbox (in its container, as root, when it was deployed in container mode). `input` holds `args` and " +
			"`results`, the results of earlier run_code steps. What it returns is kept under `result_id`. The image needs a python3 of version 3.9 or newer.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			{Name: "script_artifact_id", Kind: task.String, Required: true, Doc: "a file, or a file_artifact_universe whose .py files are staged together"},
			{Name: "script_artifact_version", Kind: task.Integer, Doc: "latest when not given"},
			{Name: "script_file", Kind: task.String, Doc: "the entry of a universe with several .py files; else its only run.py"},
			{Name: "entrypoint", Kind: task.String, Default: "run", Doc: "name of the function"},
			{Name: "args", Kind: task.ObjectKind, Loose: true, Default: doc.Of(), Doc: "passed to the function as input[\"args\"]"},
			{Name: "result_id", Kind: task.String, Doc: "key of the result in metadata.script_results; the step's id when not given"},
			{Name: "timeout_seconds", Kind: task.NumberKind, Default: doc.Int(defaultSeconds), Doc: "limit of the script, in seconds"},
			{Name: "env_id", Kind: task.String, Doc: "run on this env's host"},
			{Name: "agent_name", Kind: task.String, Doc: "run where this agent works"},
			{Name: "sandbox_name", Kind: task.String, Doc: "run in this sandbox"},
		},
		Refs: []task.Ref{
			{Path: "script_artifact_id", Kind: "artifact", VersionField: "script_artifact_version"},
			{Path: "env_id", Kind: "env"},
		},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) { return parse(d, id, f) },
		Preflight: func(ctx context.Context, s *task.Step) []string {
			a := s.Action.(*runCode)
			if _, err := choose(ctx, d.Artifacts, a.ref, a.file); err != nil {
				return []string{err.Error()}
			}
			return nil
		},
		Unsupported: func(s *task.Step) string {
			if s.Action.(*runCode).env != "" {
				return "run_code on an env (env_id)"
			}
			return ""
		},
	}}
}

type runCode struct {
	deps             Deps
	ref              artifact.Ref
	file, entrypoint string
	args             any // an object, unless a stored task says otherwise
	resultID         string
	seconds          float64
	sandbox, env     string
	agent            string // where neither sandbox nor env is named
}

func parse(d Deps, id string, f *doc.Object) (task.Action, *doc.Object, error) {
	version, _ := f.Int("script_artifact_version")
	a := &runCode{deps: d, ref: artifact.Ref{ID: f.Str("script_artifact_id"), Version: version}, file: f.Str("script_file"), entrypoint: cmp.Or(f.Str("entrypoint"), "run"),
		args: f.Value("args"), resultID: cmp.Or(f.Str("result_id"), id), env: strings.TrimSpace(f.Str("env_id")), sandbox: strings.TrimSpace(f.Str("sandbox_name"))}
	if f.Value("script_artifact_version") != nil && version < 1 {
		return nil, nil, fault.New(fault.Invalid, "script_artifact_version must be at least 1, not %s", doc.Canonical(f.Value("script_artifact_version")))
	}
	limit, _ := f.Value("timeout_seconds").(doc.Number)
	if a.seconds = limit.Float64(); a.seconds == 0 {
		a.seconds, limit = defaultSeconds, doc.Int(defaultSeconds)
	}
	if a.seconds < 0 {
		return nil, nil, fault.New(fault.Invalid, "timeout_seconds must not be negative, not %s", limit)
	}
	agent := strings.TrimSpace(f.Str("agent_name"))
	if a.env != "" || a.sandbox != "" && agent == defaultAgent {
		agent = "" // old documents carry an agent beside the target that counts
	}
	switch {
	case a.env != "" && a.sandbox != "":
		return nil, nil, fault.New(fault.Invalid, "run_code takes env_id or sandbox_name, not both")
	case a.sandbox != "" && agent != "":
		return nil, nil, fault.New(fault.Invalid, "run_code takes sandbox_name or agent_name, not both")
	case a.env == "" && a.sandbox == "" && agent == "":
		agent = defaultAgent
	}
	if !task.Truthy(a.args) {
		a.args = doc.Of()
	}
	text := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	a.agent = agent
	stored := f.Clone().Set("entrypoint", a.entrypoint).Set("args", a.args).Set("result_id", a.resultID).Set("timeout_seconds", limit).
		Set("env_id", text(a.env)).Set("agent_name", text(agent)).Set("sandbox_name", text(a.sandbox))
	return a, stored, nil
}

// Execute stages the script, runs it and records its result.
func (a *runCode) Execute(ctx context.Context, r *task.Run) error {
	result, err := a.run(ctx, r)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fault.At(err, "run_code '%s'", r.StepID)
	}
	r.Set(result, "script_results", a.resultID)
	return nil
}

func (a *runCode) run(ctx context.Context, r *task.Run) (any, error) {
	s, err := choose(ctx, a.deps.Artifacts, a.ref, a.file)
	if err != nil {
		return nil, invalid(err)
	}
	if len(s.skipped) > 0 {
		r.Log.Info("members that are no .py files are not staged: " + list(s.skipped))
	}
	record, err := target.Of(r, a.sandbox, a.agent)
	if err != nil {
		return nil, err
	}
	p, err := a.deps.Sandboxes.Place(ctx, record, "")
	if err != nil {
		return nil, err
	}
	r.Log.Info("running code", "sandbox", record.ID, "mode", record.Mode, "entry", s.entry)
	python, err := p.LookPath(ctx, "python3")
	if fault.Is(err, fault.NotFound) {
		return nil, failed("there is no python3 in %s; run_code needs an image with Python 3.9 or newer", p)
	}
	if err != nil {
		return nil, err
	}
	dir := runDir(record, r.StepID)
	if err := a.stage(ctx, r, p, dir, s); err != nil {
		return nil, err
	}
	err = a.call(ctx, r, p, python, dir, s.entry)
	var result any
	if err == nil {
		result, err = output(ctx, p, dir+"/output.json")
	}
	if err != nil {
		if gone := a.deps.Sandboxes.Confirm(ctx, record); gone != nil {
			return nil, gone
		}
		return nil, err
	}
	return result, nil
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)

// runDir returns a folder that no earlier execution used, so that nothing an earlier one left can be read. On a VM-mode
// sandbox its name ends in the sandbox's id, by which the provider finds it when the sandbox ends.
func runDir(rec sandbox.Record, step string) string {
	var b [6]byte
	rand.Read(b[:])
	if !plain.MatchString(step) {
		step = "step"
	}
	root := "/tmp/agent_env_run_code"
	if rec.Mode == sandbox.VM {
		root += "-" + rec.ID
	}
	return root + "/" + step + "-" + hex.EncodeToString(b[:])
}

func (a *runCode) stage(ctx context.Context, r *task.Run, p place.Place, dir string, s *script) error {
	results := doc.Of()
	if v, ok := r.Metadata("script_results").(*doc.Object); ok {
		results = v
	}
	input, err := doc.Marshal(doc.Of("args", a.args, "results", results))
	if err != nil {
		return err
	}
	sources := []place.Source{place.Bytes("runner.py", 0, runner), place.Bytes("input.json", 0, input)}
	total := 0
	for _, m := range s.members {
		text, err := readMember(ctx, m, maxScript-total)
		if err != nil {
			return err
		}
		total += len(text)
		sources = append(sources, place.Bytes(m.Name, 0, text))
	}
	_, err = place.Put(ctx, p, dir, sources, nil)
	return err
}

func readMember(ctx context.Context, m artifact.Member, left int) ([]byte, error) {
	body, err := m.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, int64(left)+1))
	if err == nil && len(text) > left {
		err = invalid(fault.New(fault.Invalid, "the .py files of the script are larger than 5 MiB together"))
	}
	return text, err
}

func (a *runCode) call(ctx context.Context, r *task.Run, p place.Place, python, dir, entry string) error {
	limit := strconv.FormatFloat(a.seconds, 'g', -1, 64)
	running, late := context.WithCancelCause(ctx)
	defer late(nil)
	word := rand.Text()
	res, err := p.Exec(running, place.Cmd{
		Argv: []string{python, dir + "/runner.py", dir, a.entrypoint, entry, limit, word},
		Dir:  dir, User: place.Root, Keep: keptStderr,
		Stdout:  &listener{word: word, heard: func() { late(fault.New(fault.Timeout, "the script took longer than %ss", limit)) }},
		Timeout: time.Duration(a.seconds*float64(time.Second)) + reserve, Grace: 6 * time.Second,
	})
	if res != nil {
		// What the script prints is nobody's result, and worth reading.
		r.Log.Info("the script ended", "exit", res.Code, "stdout", place.Last(place.Text(res.Stdout), loggedOutput), "stderr", place.Last(place.Text(res.Stderr), loggedOutput))
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case fault.Is(err, fault.Timeout), err == nil && res.Code == timedOut:
		return fault.New(fault.Timeout, "timed out after %ss", limit).WithClass(executionError)
	case err != nil:
		return err
	case res.Code != 0:
		text := p.Restore(place.Text(res.Stderr))
		if res.CutErr > 0 {
			text = message.NewPrinter(language.English).Sprintf("[first %d bytes of stderr cut]", res.CutErr) + text
		}
		return failed("exited %d: %s", res.Code, text)
	}
	return nil
}

func failed(format string, args ...any) error {
	return &fault.Error{Kind: fault.Internal, Class: executionError, Msg: fmt.Sprintf(format, args...)}
}

func invalid(err error) error {
	return &fault.Error{Kind: fault.KindOf(err), Class: validationError, Err: err}
}

// output reads the result file, refusing one that is too large or no JSON.
func output(ctx context.Context, p place.Place, file string) (any, error) {
	tree, err := p.Get(ctx, place.GetRequest{Roots: []string{file}})
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	e, err := tree.Next()
	if err == nil {
		err = e.Err
	}
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, failed("wrote no result file: %s", err)
	case err != nil:
		return nil, err
	case e.Kind != place.File:
		return nil, failed("wrote no result file: %s is a %s", file, e.Kind)
	case e.Size > maxOutput:
		return nil, invalid(fault.New(fault.Invalid, "the result has %d bytes; at most 50 MiB are kept", e.Size))
	}
	text, err := io.ReadAll(io.LimitReader(tree, maxOutput+1))
	if err != nil {
		return nil, err
	}
	v, err := doc.Parse(text, doc.Options{Strict: true})
	if err != nil {
		return nil, invalid(fault.At(err, "the result is no JSON"))
	}
	return v, nil
}
