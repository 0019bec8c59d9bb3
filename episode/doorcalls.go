package episode

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// episode returns the episode that a request names.
func (d *Door) episode(r *http.Request) (*Episode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.episodes[r.PathValue("episode")]
	if e == nil {
		return nil, refusal{http.StatusNotFound, "no_such_episode", fault.New(fault.NotFound, "this door has no episode %.64q, or it ended long ago", r.PathValue("episode"))}
	}
	return e, nil
}

func (d *Door) task(*http.Request, *doc.Object) (*doc.Object, error) {
	return describe(&doc.Object{}, d.plan), nil
}

func describe(answer *doc.Object, p *Plan) *doc.Object {
	prompts := []any{}
	for _, a := range p.Prompts() {
		prompts = append(prompts, prompt(&doc.Object{}, a))
	}
	return answer.Set("task_id", p.Task().ID).Set("task_version", doc.Int(p.Task().Version)).
		Set("trainer_agents", doc.MustFrom(p.TrainerAgents())).Set("prompts", prompts)
}

func prompt(answer *doc.Object, p Prompt) *doc.Object {
	answer.Set("step_id", p.StepID).Set("agent_name", p.AgentName).Set("prompt", p.Text).Set("system_prompt", nil)
	if p.SystemPrompt != "" {
		answer.Set("system_prompt", p.SystemPrompt)
	}
	return answer
}

// start begins an episode: {seed?, sandbox?}.
func (d *Door) start(r *http.Request, body *doc.Object) (*doc.Object, error) {
	for _, k := range body.Keys() {
		if k != "seed" && k != "sandbox" {
			return nil, fault.New(fault.Invalid, "field %.200q is not known; an episode is started with seed and sandbox", k)
		}
	}
	sandbox, err := text(body, "sandbox")
	if err != nil {
		return nil, err
	}
	plan := d.plan
	switch seed := body.Value("seed").(type) {
	case nil:
	case *doc.Object:
		if plan, err = plan.Seeded(seed); err != nil {
			return nil, err
		}
	default:
		return nil, fault.New(fault.Invalid, "field \"seed\" needs an object, not %s", doc.TypeName(seed))
	}
	d.starting.Lock()
	defer d.starting.Unlock()
	if d.closing != nil {
		return nil, d.closing
	}
	if live := d.forget(); live >= maxLive {
		return nil, fault.New(fault.Conflict, "%d episodes go on already; end or abandon one", live)
	}
	e, err := plan.Start(r.Context(), sandbox)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.episodes[e.ID] = e
	d.order = append(d.order, e.ID)
	return describe(doc.Of("episode_id", e.ID, "instance_id", e.Instance), plan), nil
}

// forget lets the oldest of many ended episodes go, and returns how many go on.
func (d *Door) forget() (live int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ended []string
	for _, id := range d.order {
		if d.episodes[id].over() {
			ended = append(ended, id)
		} else {
			live++
		}
	}
	for _, id := range ended[:max(len(ended)-maxEnded, 0)] {
		delete(d.episodes, id)
	}
	d.order = slices.DeleteFunc(d.order, func(id string) bool { return d.episodes[id] == nil })
	return live
}

var errWaited = errors.New("waited long enough")

// wait bounds a long poll by the request's wait_seconds.
func wait(ctx context.Context, body *doc.Object) (context.Context, context.CancelFunc, error) {
	long := ordinaryWait
	if v := body.Value("wait_seconds"); v != nil {
		n, ok := v.(doc.Number)
		if !ok || !n.Finite() || n.Float64() < 0 || n.Float64() > longestWait.Seconds() {
			return nil, nil, fault.New(fault.Invalid, "field \"wait_seconds\" needs a number from 0 to %g, not %s", longestWait.Seconds(), task.Brief(v))
		}
		long = time.Duration(n.Float64() * float64(time.Second))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, long, errWaited)
	return ctx, cancel, nil
}

// next waits for a turn: {after?, wait_seconds?}. No turn and not done: ask again.
func (d *Door) next(ctx context.Context, e *Episode, body *doc.Object) (*doc.Object, error) {
	after := int64(0)
	if v := body.Value("after"); v != nil {
		n, _ := v.(doc.Number)
		var ok bool
		if after, ok = n.Int64(); !ok || after < 0 || after > 1<<31 {
			return nil, fault.New(fault.Invalid, "field \"after\" needs the number of a turn, or 0, not %s", task.Brief(v))
		}
	}
	ctx, cancel, err := wait(ctx, body)
	if err != nil {
		return nil, err
	}
	defer cancel()
	t, err := e.TurnAfter(ctx, int(after))
	switch {
	case errors.Is(err, errWaited):
		return doc.Of("turn", nil, "done", false), nil
	case ctx.Err() != nil && t == nil && !e.over():
		return nil, err // the client has gone
	case t == nil:
		return withError(doc.Of("turn", nil, "done", true), err), nil
	}
	return doc.Of("turn", prompt(doc.Of("turn", doc.Int(t.Number)), t.Prompt), "done", false), nil
}

func withError(answer *doc.Object, err error) *doc.Object {
	if err == nil {
		return answer.Set("error", nil)
	}
	return answer.Set("error", doc.Of("kind", string(fault.KindOf(err)), "detail", err.Error()))
}

// result waits for the end of the run and its teardown: {wait_seconds?}.
func (d *Door) result(ctx context.Context, e *Episode, body *doc.Object) (*doc.Object, error) {
	ctx, cancel, err := wait(ctx, body)
	if err != nil {
		return nil, err
	}
	defer cancel()
	res, err := e.Result(ctx)
	switch {
	case errors.Is(err, errWaited):
		return doc.Of("done", false), nil
	case res == nil && !e.over():
		return nil, err
	}
	answer := doc.Of("done", true, "instance_id", e.Instance, "status", "failed", "outcome_class", string(task.ClassOf(err)), "scores", []any{}, "still_up", []any{})
	if res != nil {
		scores, up := []any{}, []any{}
		for _, s := range res.Scores {
			scores = append(scores, doc.Of("step_id", s.Label, "score", doc.Float(s.Value)))
		}
		for _, s := range res.TornDown.Left {
			up = append(up, doc.Of("sandbox_id", s.ID, "provider", s.Provider, "why", s.Why))
		}
		answer.Set("status", res.Status).Set("outcome_class", string(res.Class)).Set("scores", scores).Set("still_up", up)
	}
	return withError(answer, err), nil
}

// abandon cancels the run and waits for its end: {reason?, wait_seconds?}.
func (d *Door) abandon(ctx context.Context, e *Episode, body *doc.Object) (*doc.Object, error) {
	reason, err := text(body, "reason")
	if err != nil {
		return nil, err
	}
	if len(reason) > maxReason {
		return nil, fault.New(fault.Invalid, "field \"reason\" has %d bytes, the most is %d", len(reason), maxReason)
	}
	ctx, cancel, err := wait(ctx, body)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if err := e.Abandon(ctx, reason); err != nil && !errors.Is(err, errWaited) {
		return nil, err
	}
	return doc.Of("done", e.over()), nil
}

func listTools(ctx context.Context, t *Turn, _ *doc.Object) (*doc.Object, error) {
	list, err := t.Tools(ctx)
	if err != nil {
		return nil, err
	}
	tools := []any{}
	for _, l := range list {
		schema := l.InputSchema
		if schema == nil {
			schema = doc.Of("type", "object")
		}
		tools = append(tools, doc.Of("name", l.Name, "description", l.Description, "input_schema", schema))
	}
	return doc.Of("tools", tools), nil
}

// callTool runs a tool: {name, arguments?}.
func callTool(ctx context.Context, t *Turn, body *doc.Object) (*doc.Object, error) {
	name, err := text(body, "name")
	if err != nil {
		return nil, err
	}
	args, ok := body.Value("arguments").(*doc.Object)
	if !ok && body.Value("arguments") != nil {
		return nil, fault.New(fault.Invalid, "field \"arguments\" needs an object, not %s", task.Brief(body.Value("arguments")))
	}
	res, err := t.Call(ctx, ToolCall{Name: name, Arguments: args})
	if err != nil {
		return nil, err
	}
	return doc.Of("content", res.Content, "is_error", res.IsError), nil
}

// record takes down a model call: {message, model?}.
func record(ctx context.Context, t *Turn, body *doc.Object) (*doc.Object, error) {
	model, err := text(body, "model")
	if err != nil {
		return nil, err
	}
	return &doc.Object{}, t.RecordModelCall(ctx, ModelCall{Message: body.Value("message"), Model: model})
}

// end ends a turn: {response?}.
func end(_ context.Context, t *Turn, body *doc.Object) (*doc.Object, error) {
	reply, err := text(body, "response")
	if err != nil {
		return nil, err
	}
	return &doc.Object{}, t.End(reply)
}

// text returns a text that may be left out.
func text(body *doc.Object, key string) (string, error) {
	v := body.Value(key)
	s, ok := v.(string)
	if !ok && v != nil {
		return "", fault.New(fault.Invalid, "field %q needs a string, not %s", key, task.Brief(v))
	}
	return s, nil
}
