package files

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox/place"
	"agentenv/store/doc"
	"agentenv/task"
)

const (
	// listedLeftOut and listedProduced bound what a run's record lists; the counts are always whole.
	listedLeftOut  = 200
	listedProduced = 100
)

func collectType(d Deps) *task.StepType {
	return &task.StepType{
		Name:    "collect_artifacts",
		Summary: "Copy produced files out of a sandbox, or from where an agent works, into a file_artifact_universe",
		Family:  "files",
		Doc: "What to collect: the run's override, the manifest of a step, the seed column, or `artifact_paths`; with none of them every regular file below " +
			"`base_path`. An entry is a file, a folder (everything below it), or a pattern (`*`, `**`, `?`, `[…]`, `{a,b}`) when no file has that very " +
			"name. Files are read as root. A listed file that is absent is passed over as long as something was collected; one that is there and cannot be read whole fails the step. " +
			"Links and special files inside a folder are left out and listed in the record with the reason.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			{Name: "agent_name", Kind: task.String, Default: defaultAgent, Doc: "collect where this agent works"},
			{Name: "base_path", Kind: task.String, Default: "/app/artifact", Doc: "where relative entries start"},
			{Name: "artifacts_key", Kind: task.String, Default: "expected_artifacts", Doc: "seed column that holds a comma-separated list"},
			{Name: "artifact_paths", Kind: task.List, Items: task.String, Default: []any{}, Doc: "files, folders or patterns to collect"},
			{Name: "env_id", Kind: task.String, Doc: "collect from this computer-use env"},
			{Name: "manifest_step_id", Kind: task.String, Doc: "take the paths from that step's structured output"},
			{Name: "exclude_basenames", Kind: task.List, Items: task.String, Loose: true, Default: []any{}, Doc: "file names to leave out of a manifest or an enumeration"},
			{Name: "sandbox_name", Kind: task.String, Doc: "collect from this sandbox: its host in vm mode, its container in container mode"},
			{Name: "container_name", Kind: task.String, Doc: "collect from this container that a step started on sandbox_name"},
			{Name: "universe_id_suffix", Kind: task.String, Doc: "added to the id of the collected artifact"},
		},
		Refs: []task.Ref{{Path: "env_id", Kind: "env"}},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			a, stored, err := parseCollect(f)
			if err != nil {
				return nil, nil, err
			}
			a.deps = d
			return a, stored, nil
		},
		Check: func(s *task.Step) []string { return absolute("base_path", s.Action.(*collect).base) },
		Unsupported: func(s *task.Step) string {
			if s.Action.(*collect).env != "" {
				return "collect_artifacts from an env (env_id)"
			}
			return ""
		},
	}
}

type collect struct {
	deps                    Deps
	sandbox, container, env string
	agent                   string // where neither sandbox nor env is named
	base, seedKey           string
	paths                   []string
	manifest, suffix        string
	exclude                 []string
}

func parseCollect(f *doc.Object) (*collect, *doc.Object, error) {
	a := &collect{sandbox: f.Str("sandbox_name"), container: f.Str("container_name"), env: f.Str("env_id"), base: folder(f.Str("base_path")),
		seedKey: f.Str("artifacts_key"), paths: texts(f.Arr("artifact_paths")), manifest: f.Str("manifest_step_id"), suffix: f.Str("universe_id_suffix")}
	if a.base == "" {
		a.base = "/" // which other writers store as "", its slash trimmed
	}
	a.exclude = texts(f.Arr("exclude_basenames"))
	slices.Sort(a.exclude)
	a.exclude = slices.Compact(a.exclude)
	agent := f.Str("agent_name")
	a.agent = cmp.Or(agent, defaultAgent)
	chosen := agent != "" && agent != defaultAgent
	bad := func(text string) (*collect, *doc.Object, error) {
		return nil, nil, fault.New(fault.Invalid, "%s", text)
	}
	switch {
	case a.env != "" && chosen:
		return bad("collect_artifacts takes env_id or agent_name, not both")
	case a.container != "" && a.sandbox == "":
		return bad("container_name needs sandbox_name, the sandbox it runs on")
	case a.sandbox != "" && (chosen || a.env != ""):
		return bad("collect_artifacts takes sandbox_name, agent_name or env_id, not several of them")
	}
	stored := f.Clone().Set("base_path", a.base).Set("exclude_basenames", toAny(a.exclude))
	if agent == "" {
		stored.Set("agent_name", defaultAgent)
	}
	return a, stored, nil
}

func texts(in []any) []string {
	var out []string
	for _, v := range in {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// Execute collects, records what it did, and then judges it.
func (a *collect) Execute(ctx context.Context, r *task.Run) error {
	return fault.At(a.execute(ctx, r), "collect_artifacts %q", r.StepID)
}

func (a *collect) execute(ctx context.Context, r *task.Run) error {
	id := a.artifactID(r)
	// What the store would refuse in the end is refused before the sandbox is touched.
	if _, err := a.deps.Artifacts.NextVersion(ctx, id); err != nil {
		return err
	}
	g := &gathered{collection: &artifact.Collection{}}
	items, listed, err := a.resolve(r, g)
	if err != nil {
		return err
	}
	p, err := a.deps.target(ctx, r, a.sandbox, a.container, a.agent)
	if err != nil {
		return err
	}
	wanted := items
	switch {
	case len(items) > 0:
		if items, err = a.expand(ctx, r, p, items, g); err != nil {
			return err
		}
		err = a.gather(ctx, r, p, id, items, nil, g)
	case !listed:
		err = a.enumerate(ctx, r, p, id, g)
	}
	if err != nil {
		return err
	}
	a.record(ctx, r, p, wanted, g)
	return a.judge(wanted, g)
}

// artifactID names the artifact that collected files become.
func (a *collect) artifactID(r *task.Run) string {
	id, _ := r.Metadata("universe_id").(string)
	if id == "" {
		id = r.Instance
	}
	if id == "" {
		id = "unknown"
	}
	return id + a.suffix
}

// record writes what was collected into the run's context.
func (a *collect) record(ctx context.Context, r *task.Run, p place.Place, wanted []item, g *gathered) {
	urls := doc.Of()
	for _, f := range g.collection.Files {
		urls.Set(f.Key, f.URL)
	}
	entry := doc.Of("artifacts", urls, "file_artifact_universe", nil)
	if u := g.collection.Universe; u != nil {
		ref := doc.Of("id", u.ID, "version", doc.Int(u.Version))
		entry.Set("file_artifact_universe", ref)
		r.Set(ref, "file_artifact_universe")
	} else {
		r.Unset("file_artifact_universe")
	}
	if g.leftCount > 0 {
		entry.Set("left_out", g.leftOut).Set("left_out_count", doc.Int(g.leftCount))
		r.Report(task.Progress{Note: leftOutNote(g)})
	}
	r.Set(urls, "artifacts")
	r.Set(entry, "collected_artifacts", r.StepID)
	if len(wanted)+len(g.refused) == 0 || len(g.collection.Files) > 0 {
		r.Unset("collect_produced_files")
		return
	}
	var names []string
	for e, err := range p.Walk(ctx, a.base, false) {
		if err != nil {
			break
		}
		if e.Name != "" && !strings.Contains(e.Name, "/") {
			names = append(names, place.Text([]byte(e.Name)))
		}
	}
	slices.Sort(names)
	r.Set(doc.Of("step_id", r.StepID, "base_path", a.base, "files", toAny(names[:min(len(names), listedProduced)])), "collect_produced_files")
}

// judge decides how the step ends, after the record was written.
func (a *collect) judge(wanted []item, g *gathered) error {
	if len(g.refused) > 0 {
		texts := make([]string, len(g.refused))
		for i, err := range g.refused {
			texts[i] = err.Error()
		}
		return fault.New(fault.Invalid, "%s", strings.Join(texts, "; ")).WithClass("RuntimeError")
	}
	if len(g.broken) > 0 {
		return fault.New(fault.Unavailable, "%d artifact(s) exist in the sandbox but could not be collected; the log and metadata.collected_artifacts name the reasons: %s",
			len(g.broken), quoted(g.broken)).WithClass("RuntimeError")
	}
	if len(wanted) > 0 && g.collection.Universe == nil {
		sources := make([]string, len(wanted))
		for i, it := range wanted {
			sources[i] = it.source
		}
		if err := g.collection.RecordErr; err != nil {
			return fault.At(err, "collected, but not recorded as an artifact")
		}
		return fault.New(fault.NotFound, "nothing of what is listed is there: %s; metadata.collect_produced_files shows what %s holds", quoted(sources), a.base).WithClass("RuntimeError")
	}
	return nil
}
