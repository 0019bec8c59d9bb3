package task

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Run is one step's view of the run it belongs to: an isolated snapshot of the context plus the step's own writes. It never
// sees what other steps commit meanwhile; its exact difference from the snapshot becomes the step's journal row when the
// step ends. Safe for concurrent use by the goroutines of that step. Values given to it must not be changed afterwards, and
// values read from it are shared and must not be changed.
type Run struct {
	Instance    string // "" when the run is not recorded
	TaskID      string
	TaskVersion int64
	StepID      string
	StepType    string
	Epoch       int64        // counts the attempts of the run: retries and resumes raise it
	Log         *slog.Logger // carries instance and step; user secrets never go in
	state       *view
}

type view struct {
	mu     sync.Mutex
	start  *doc.Object // the snapshot, secrets included
	now    *doc.Object
	report func(Progress) // may be nil
}

// NewRun returns a view of a context (nil: an empty one) that belongs to no engine, for running one Action by itself. report
// hears its progress and may be nil; a nil log discards. The other fields may be set before use.
func NewRun(stepID, stepType string, context *doc.Object, log *slog.Logger, report func(Progress)) *Run {
	if context == nil {
		context = NewContext()
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Run{StepID: stepID, StepType: stepType, Log: log, state: &view{start: context, now: context, report: report}}
}

// Context returns the context as the step sees it: the snapshot with the step's own writes. It is a snapshot itself: later
// writes do not show in it.
func (r *Run) Context() *doc.Object {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	return r.state.now
}

func (r *Run) change(f func(e *editor)) {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	e := edit(r.state.now)
	f(e)
	r.state.now = e.root
}

func metadataPath(path []string) []string { return append([]string{"metadata"}, path...) }

// Metadata returns the value at a path of keys below context.metadata, nil when absent. No path gives the whole metadata.
func (r *Run) Metadata(path ...string) any {
	v, _ := r.Lookup(path...)
	return v
}

// Lookup is Metadata that tells absent from null.
func (r *Run) Lookup(path ...string) (any, bool) { return lookup(r.Context(), metadataPath(path)) }

// Set puts a value at a path of keys below context.metadata, making the maps on the way; something else that stands where a
// map is needed gives way. A second call replaces the value. It panics without a path.
func (r *Run) Set(value any, path ...string) {
	mustPath(path)
	r.change(func(e *editor) { e.set(metadataPath(path), value) })
}

// Unset removes the value at a path below context.metadata; an absent path is a no-op. It panics without a path.
func (r *Run) Unset(path ...string) {
	mustPath(path)
	r.change(func(e *editor) { e.unset(metadataPath(path)) })
}

// Append adds an item at the end of the list at a path below context.metadata, making the list when absent. An item equal to
// one that is there collapses with it when the step's effect is committed. It panics without a path.
func (r *Run) Append(item any, path ...string) {
	mustPath(path)
	r.appendAt(item, metadataPath(path))
}

func mustPath(path []string) {
	if len(path) == 0 {
		panic("task: a write below context.metadata needs a path")
	}
}

func (r *Run) appendAt(item any, path []string) {
	r.change(func(e *editor) {
		v, _ := lookup(e.root, path)
		list, _ := v.([]any)
		e.set(path, append(slices.Clip(list), item))
	})
}

// Sandboxes returns the records of context.deployed_sandboxes in order.
func (r *Run) Sandboxes() []Sandbox { return Sandboxes(r.Context()) }

// Sandboxes returns the records of a context's deployed_sandboxes in order.
func Sandboxes(context *doc.Object) []Sandbox {
	var all []Sandbox
	for _, o := range objects(context, "deployed_sandboxes") {
		all = append(all, sandboxFrom(o))
	}
	return all
}

// Sandbox returns the record of the sandbox with this name; the error is Invalid, recorded as a RuntimeError, and lists the
// names that are deployed.
func (r *Run) Sandbox(name string) (Sandbox, error) {
	var names []string
	for _, s := range r.Sandboxes() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	there := "no sandbox is deployed before this step"
	if len(names) > 0 {
		there = "deployed before this step: " + strings.Join(names, ", ")
	}
	return Sandbox{}, fault.New(fault.Invalid, "no sandbox named %q; %s", name, there).WithClass("RuntimeError")
}

// Agent returns the record of the deployed agent with this name; the error is Invalid, recorded as a RuntimeError, and lists the
// names that are deployed.
func (r *Run) Agent(name string) (*doc.Object, error) {
	var names []string
	for _, a := range r.Agents() {
		if a.Str("agent_name") == name {
			return a, nil
		}
		names = append(names, a.Str("agent_name"))
	}
	there := "no agent is deployed before this step"
	if len(names) > 0 {
		there = "deployed before this step: " + strings.Join(names, ", ")
	}
	return nil, fault.New(fault.Invalid, "no agent named %q; %s", name, there).WithClass("RuntimeError")
}

// AddSandbox appends a record; a name that is taken is an Exists error. It must be the step's last effect: a step that runs
// at the same time may take the name first, and then this step fails when it ends.
func (r *Run) AddSandbox(s Sandbox) error {
	for _, other := range r.Sandboxes() {
		if other.Name == s.Name {
			return fault.New(fault.Exists, "a sandbox named %q is already deployed in this run", s.Name)
		}
	}
	r.appendAt(s.Document(), []string{"deployed_sandboxes"})
	return nil
}

// AddAgent appends a record to context.deployed_agents; an agent_name that is taken is an Exists error. As with AddSandbox it
// must be the step's last effect.
func (r *Run) AddAgent(record *doc.Object) error {
	name := record.Str("agent_name")
	for _, other := range r.Agents() {
		if other.Str("agent_name") == name {
			return fault.New(fault.Exists, "an agent named %q is already deployed in this run", name)
		}
	}
	r.appendAt(record, []string{"deployed_agents"})
	return nil
}

// SetDefaultAgentModel sets the context's default_agent_model: the model of agents for which neither the run nor the step names one.
func (r *Run) SetDefaultAgentModel(model string) {
	r.change(func(e *editor) { e.set([]string{"default_agent_model"}, model) })
}

// AddPromptResponse appends a record to context.prompt_responses. It must be the step's last effect.
func (r *Run) AddPromptResponse(record *doc.Object) {
	r.appendAt(record, []string{"prompt_responses"})
}

// Agents returns context.deployed_agents as stored, for steps that act on them.
func (r *Run) Agents() []*doc.Object { return objects(r.Context(), "deployed_agents") }

// Envs returns context.deployed_envs as stored.
func (r *Run) Envs() []*doc.Object { return objects(r.Context(), "deployed_envs") }

// PromptResponses returns context.prompt_responses as stored.
func (r *Run) PromptResponses() []*doc.Object { return objects(r.Context(), "prompt_responses") }

func objects(context *doc.Object, key string) []*doc.Object {
	var all []*doc.Object
	for _, v := range context.Arr(key) {
		if o, ok := v.(*doc.Object); ok {
			all = append(all, o)
		}
	}
	return all
}

// Override returns metadata.user_overrides.<key>, nil when absent or null.
func (r *Run) Override(key string) any { return r.Metadata("user_overrides", key) }

// Param returns metadata.user_overrides.step_params.<this step>.<key> and whether it is there (null is there).
func (r *Run) Param(key string) (any, bool) {
	return r.Lookup("user_overrides", "step_params", r.StepID, key)
}

// Attribution returns the tags for what the step deploys: authored (metadata.attribution of the step), pipeline_step and
// run_id added where the author gave none.
func (r *Run) Attribution(stepMetadata *doc.Object) map[string]string {
	tags := map[string]string{}
	authored := stepMetadata.Obj("attribution")
	for _, k := range authored.Keys() {
		tags[k] = plainText(authored.Value(k))
	}
	if id, ok := r.Metadata("task_id").(string); ok && id != "" {
		if _, given := tags["pipeline_step"]; !given {
			tags["pipeline_step"] = id + "_" + r.StepID
		}
	}
	if _, given := tags["run_id"]; !given && r.Instance != "" {
		tags["run_id"] = r.Instance
	}
	return tags
}

// Report passes progress of the step to the run's observer.
func (r *Run) Report(p Progress) {
	if r.state.report != nil {
		r.state.report(p)
	}
}
