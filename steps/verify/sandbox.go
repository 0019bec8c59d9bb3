package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/pattern"
	"agentenv/sandbox"
	"agentenv/sandbox/place"
	"agentenv/steps/target"
	"agentenv/store/doc"
	"agentenv/task"
)

const (
	// maxProbeFile is how much of a file a content probe reads.
	maxProbeFile = 64 << 20
	// matchLimit bounds the search of one pattern, since a pathological one can take for ever.
	matchLimit     = 10 * time.Second
	defaultSeconds = 120
	// maxSeconds is the longest limit of a probe, a hundred years.
	maxSeconds = 100 * 365 * 24 * 3600
	// defaultAgent is the agent name that never counts as chosen by the author.
	defaultAgent = "default-agent"
)

func sandboxType(d Deps) *task.StepType {
	return &task.StepType{
		Name:    "verify_sandbox",
		Summary: "Check files, folders, contents and shell commands in a sandbox, or where an agent works, and score the result",
		Family:  "verify",
		Doc: "Each entry of `criteria` is one row: `probe_file_exists` and `probe_dir_exists` (`paths`), `probe_file_contains` (`paths`, `expected`: a " +
			"regular expression as Python's `re` reads it, found anywhere), `bash_cmd_succeeds` (`bash_cmd`: exit 0). Relative paths start at `base_dir`. Path and content " +
			"probes read as root; a shell command runs as the image's own user, by bash where the image has it, else by sh. A failed row never fails the step; a sandbox that goes away meanwhile does.",
		FailsTask:  true,
		Repeatable: true,
		IsVerifier: true,
		Fields: []task.Field{
			{Name: "criteria", Kind: task.List, Items: task.ObjectKind, Default: []any{}, Doc: "the checks, each an object with `type` and that type's fields; `weight` counts for weighted_average"},
			{Name: "agent_name", Kind: task.String, Default: defaultAgent, Doc: "check where this agent works"},
			{Name: "sandbox_name", Kind: task.String, Doc: "check this sandbox: its host in vm mode, its container in container mode"},
			{Name: "base_dir", Kind: task.String, Loose: true, Default: "/app", Doc: "where relative paths start and shell commands run"},
			{Name: "shell_timeout_seconds", Kind: task.NumberKind, Default: doc.Int(defaultSeconds), Loose: true, Doc: "limit of each probe, in seconds"},
			aggregatorField(AllPass),
			verifierField(),
		},
		Given: func(f *doc.Object) error {
			if limit, _ := f.Value("shell_timeout_seconds").(doc.Number); limit.Float64() <= 0 {
				return fault.New(fault.Invalid, "shell_timeout_seconds must be greater than 0, not %s", limit)
			}
			return nil
		},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			stored, vid := withVerifierID(f)
			a := &verifySandbox{deps: d, id: vid, how: f.Str("score_aggregator"), base: f.Str("base_dir"), sandbox: strings.TrimSpace(f.Str("sandbox_name")),
				agent: cmp.Or(f.Str("agent_name"), defaultAgent)}
			if agent := f.Str("agent_name"); a.sandbox != "" {
				if agent != "" && agent != defaultAgent {
					return nil, nil, fault.New(fault.Invalid, "verify_sandbox takes sandbox_name or agent_name, not both")
				}
				stored.Set("agent_name", nil).Set("sandbox_name", a.sandbox)
			} else {
				stored.Delete("sandbox_name")
			}
			a.readLimit(f.Value("shell_timeout_seconds"))
			if v := f.Value("base_dir"); task.Truthy(v) {
				a.noBase = wrongType("base_dir", "string", v)
			}
			for _, c := range f.Arr("criteria") {
				o, ok := c.(*doc.Object)
				if !ok {
					return nil, nil, fault.New(fault.Invalid, "criteria holds a %s; each entry is an object", doc.TypeName(c))
				}
				a.criteria = append(a.criteria, o)
			}
			return a, stored, nil
		},
		Warn: func(s *task.Step) []string {
			out := s.Action.(*verifySandbox).warnings()
			if s.Retry != nil {
				out = append(out, "retry_config: a row that fails lowers the score and is no failure of the step, which is tried again only when it cannot check at all")
			}
			return out
		},
	}
}

type verifySandbox struct {
	deps          Deps
	id, how       string
	base, sandbox string
	agent         string // where no sandbox is named
	seconds       float64
	criteria      []*doc.Object
	// Of a stored task: why no row can pass, and why no command can run in base_dir.
	noLimit, noBase string
}

// readLimit takes the limit of a probe. A stored task may hold anything there: then its rows fail, as they did for who stored it.
func (a *verifySandbox) readLimit(v any) {
	switch v := v.(type) {
	case nil:
		a.seconds = defaultSeconds
	case doc.Number:
		a.seconds = v.Float64()
	case bool:
		if v {
			a.seconds = 1
		}
	default:
		a.noLimit = wrongType("shell_timeout_seconds", "number", v)
		return
	}
	if !(a.seconds > 0) {
		a.noLimit = a.timedOut("")
	}
}

// Execute runs the probes in order and records rows and score.
func (a *verifySandbox) Execute(ctx context.Context, r *task.Run) error {
	record, err := target.Of(r, a.sandbox, a.agent)
	if err != nil {
		return fault.At(err, "verify_sandbox %q", r.StepID)
	}
	var weighed []*doc.Object
	for i, c := range a.criteria {
		if handled(c) {
			weighed = append(weighed, c.Clone().Set("criterion_index", doc.Int(i)))
		}
	}
	if err := checkWeights(a.how, weighed); err != nil {
		return fault.At(err, "verify_sandbox %q", r.StepID)
	}
	r.Log.Info("verifying", "sandbox", record.ID, "mode", record.Mode)
	p, err := a.deps.Sandboxes.Place(ctx, record, "")
	if err != nil {
		return fault.At(err, "verify_sandbox %q", r.StepID)
	}
	probes := &prober{verifySandbox: a, host: record.Mode == sandbox.VM}
	rows := make([]any, 0, len(a.criteria))
	var graded []*doc.Object
	failed := false
	for i, c := range a.criteria {
		row := c.Clone().Set("criterion_index", doc.Int(i))
		if !handled(c) {
			row.Set("skipped", true).Set("justification", fmt.Sprintf("type %s not handled by verify_sandbox", repr(c.Value("type"))))
		} else {
			v := probes.probe(ctx, p, c)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if v.lost != nil {
				if err := a.deps.Sandboxes.Confirm(ctx, record); err != nil {
					v.lost = err
				}
				return fault.At(v.lost, "verify_sandbox %q: criterion %d cannot be checked", r.StepID, i)
			}
			score := 0.0
			if v.pass {
				score = 1
			}
			row.Set("score", doc.Float(score)).Set("result", v.pass).Set("justification", p.Restore(v.why)).Set("skipped", false)
			graded = append(graded, row)
			if !v.pass {
				failed = true
				a.tell(r, i, c, row.Str("justification"))
			}
		}
		rows = append(rows, row)
		r.Report(task.Progress{What: "checking", Files: i + 1})
	}
	if failed {
		if err := a.deps.Sandboxes.Confirm(ctx, record); err != nil {
			return fault.At(err, "verify_sandbox %q: nothing is graded", r.StepID)
		}
	}
	r.Set(doc.Of("score", doc.Float(Aggregate(a.how, graded)), "results", rows), "verifications", a.id)
	return nil
}

// tellRows is how many failed rows people are told of; the record holds all.
const tellRows = 5

func (a *verifySandbox) tell(r *task.Run, i int, c *doc.Object, why string) {
	r.Log.Info("row failed", "criterion", i, "type", c.Str("type"), "justification", why)
	if i < tellRows {
		r.Report(task.Progress{Note: fmt.Sprintf("criterion %d (%s) failed: %s", i, c.Str("type"), strings.TrimSpace(strings.ReplaceAll(why, "\n", " ")))})
	}
}

// prober runs the probes of one execution.
type prober struct {
	*verifySandbox
	host bool // on a host, not in a container
}

type verdict struct {
	pass bool
	why  string
	lost error // the place is not there or does not answer: nothing can be said of the row
}

func (a *prober) probe(ctx context.Context, p place.Place, c *doc.Object) verdict {
	if a.noLimit != "" {
		return verdict{why: a.noLimit}
	}
	if a.noBase != "" && c.Str("type") == "bash_cmd_succeeds" {
		return verdict{why: a.noBase}
	}
	if why := mistyped(c); why != "" {
		return verdict{why: "evaluator error: " + why}
	}
	switch c.Str("type") {
	case "probe_file_exists":
		return a.exists(ctx, p, c, false)
	case "probe_dir_exists":
		return a.exists(ctx, p, c, true)
	case "probe_file_contains":
		return a.contains(ctx, p, c)
	}
	return a.shell(ctx, p, c)
}

// limited gives one probe its time.
func (a *verifySandbox) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.limit())
}

// limit is the time of one probe; what does not fit in a Duration has none that matters.
func (a *verifySandbox) limit() time.Duration {
	return time.Duration(min(a.seconds, maxSeconds) * float64(time.Second))
}

func (a *verifySandbox) timedOut(what string) string {
	if what != "" {
		what = " " + what
	}
	return fmt.Sprintf("timed out%s after %ss", what, strconv.FormatFloat(a.seconds, 'g', -1, 64))
}

func (a *verifySandbox) at(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(a.base, name)
}

func (a *prober) exists(ctx context.Context, p place.Place, c *doc.Object, folder bool) verdict {
	names := paths(c)
	if len(names) == 0 {
		return verdict{why: "no paths specified"}
	}
	var missing []string
	for _, name := range names {
		if a.host && leaves(a.base, name) {
			return verdict{why: fmt.Sprintf("the path %s leaves base_dir %s", repr(name), a.base)}
		}
		if !path.IsAbs(a.at(name)) {
			missing = append(missing, name)
			continue
		}
		pctx, cancel := a.limited(ctx)
		e, err := p.Stat(pctx, a.at(name), true)
		late := pctx.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case late:
			return verdict{why: a.timedOut("checking " + name)}
		case fault.Is(err, fault.Unavailable):
			return verdict{lost: err}
		case fault.Is(err, fault.NotFound):
			missing = append(missing, name)
		case err != nil:
			return broken(err)
		case folder && e.Kind != place.Dir:
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return verdict{why: "Missing: " + quoted(missing)}
	}
	return verdict{pass: true, why: "All paths exist"}
}

func broken(err error) verdict { return verdict{why: "evaluator error: " + clip(err.Error(), 300)} }

// clip cuts text to n characters.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n])
}

func (a *prober) contains(ctx context.Context, p place.Place, c *doc.Object) verdict {
	names := paths(c)
	if len(names) == 0 {
		return verdict{why: "no path"}
	}
	name := names[0]
	if a.host && leaves(a.base, name) {
		return verdict{why: fmt.Sprintf("could not read %s: the path leaves base_dir %s", name, a.base)}
	}
	pctx, cancel := a.limited(ctx)
	defer cancel()
	text, err := read(pctx, p, a.at(name))
	switch {
	case pctx.Err() != nil && ctx.Err() == nil:
		return verdict{why: a.timedOut("reading " + name)}
	case fault.Is(err, fault.Unavailable):
		return verdict{lost: err}
	case err != nil:
		return verdict{why: "could not read " + name + ": " + clip(p.Restore(err.Error()), 100)}
	}
	return a.search(place.Text(text), patternOf(c))
}

// search looks for a pattern in a file's text, within the time of a probe and at most matchLimit.
func (a *prober) search(text, wanted string) verdict {
	re, err := pattern.Compile(wanted)
	if err != nil {
		return verdict{why: fmt.Sprintf("invalid regex pattern %s: %s", repr(wanted), pattern.Reason(err))}
	}
	re.MatchTimeout = min(matchLimit, a.limit())
	found, err := re.MatchString(text)
	switch {
	case err != nil:
		return verdict{why: fmt.Sprintf("the search for %s took longer than %s", repr(wanted), re.MatchTimeout)}
	case !found:
		return verdict{why: fmt.Sprintf("does not contain %s", repr(wanted))}
	}
	return verdict{pass: true, why: fmt.Sprintf("contains %s", repr(wanted))}
}

func read(ctx context.Context, p place.Place, file string) ([]byte, error) {
	tree, err := p.Get(ctx, place.GetRequest{Roots: []string{file}, Follow: true})
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	e, err := tree.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fault.New(fault.NotFound, "no such file or directory")
	case err != nil:
		return nil, err
	case e.Err != nil:
		return nil, e.Err
	case e.Kind != place.File:
		return nil, fault.New(fault.Invalid, "it is a %s", e.Kind)
	case e.Size > maxProbeFile:
		return nil, fault.New(fault.Invalid, "it is larger than 64 MiB")
	}
	return io.ReadAll(io.LimitReader(tree, maxProbeFile))
}

// missing says what a command that could not begin lacks: a shell, or its folder.
func (a *prober) missing(ctx context.Context, p place.Place, err error) string {
	if _, none := place.Shell(ctx, p); fault.Is(none, fault.NotFound) {
		err = none
	} else if _, gone := p.Stat(ctx, a.base, true); fault.Is(gone, fault.NotFound) {
		err = fault.New(fault.NotFound, "the folder %s (base_dir) is not in %s", a.base, p)
	}
	return clip(p.Restore(err.Error()), 300)
}

func (a *prober) shell(ctx context.Context, p place.Place, c *doc.Object) verdict {
	cmd := c.Str("bash_cmd")
	if strings.TrimSpace(cmd) == "" {
		return verdict{why: "no bash_cmd"}
	}
	res, err := p.Exec(ctx, place.Cmd{Script: cmd, Dir: a.base, Timeout: a.limit(), Keep: 1 << 20})
	switch {
	case fault.Is(err, fault.Timeout) && ctx.Err() == nil:
		return verdict{why: a.timedOut("")}
	case fault.Is(err, fault.Unavailable):
		return verdict{lost: err}
	case fault.Is(err, fault.NotFound):
		return verdict{why: a.missing(ctx, p, err)}
	case fault.Is(err, fault.Denied, fault.Invalid, fault.Unsupported, fault.Canceled):
		return verdict{why: clip(p.Restore(err.Error()), 300)}
	case err != nil: // it did not run, which says nothing about the work
		return verdict{lost: fault.Wrap(fault.Unavailable, err, "the command could not be started")}
	}
	why := fmt.Sprintf("exit=%d; stderr=%s", res.Code, clip(place.Text(res.Stderr), 200))
	if res.Shell == "sh" {
		why += " (run by sh: there is no bash)"
	}
	return verdict{pass: res.Code == 0, why: why}
}
