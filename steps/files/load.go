package files

import (
	"context"
	"net/http"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox/place"
	"agentenv/store/doc"
	"agentenv/task"
)

// Where things land when the step names no destination_path.
const (
	sandboxFolder     = "/loaded"
	urlFolder         = "/tmp/file_artifacts"
	environmentFolder = "/app/files"
)

// fetchesAtOnce is how many URLs are downloaded at a time.
const fetchesAtOnce = 8

// listedFiles is how many names of an environment's payload a run's record lists.
const listedFiles = 200

func loadType(d Deps) *task.StepType {
	return &task.StepType{
		Name:    "load_artifact",
		Summary: "Stage artifacts and URLs into a sandbox or where an agent works",
		Family:  "files",
		Doc: "Files land below `destination_path`, owned by root, folders 0755 and files 0644. Existing files are replaced " +
			"whole. In a sandbox recorded as a container they land in its container, in vm mode on its host. What was staged is checked: count, size and " +
			"sha256. It takes the types file, file_artifact_universe, environment_universe (its files, as <environment>/<file>) and environment (the files its zip or JSON payload lists). URLs are fetched by agent-env itself, so the image needs no download tool.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			{Name: "env_id", Kind: task.String, Doc: "load into this env"},
			{Name: "env_step_id", Kind: task.String, Doc: "which deployment of env_id, when there are several"},
			{Name: "artifacts", Kind: task.List, Items: task.ObjectKind, Default: []any{}, Doc: "what to load, in order: `{\"id\": …, \"version\": …}`"},
			{Name: "artifact_id", Kind: task.String, Input: true, Doc: "shorthand for one entry of artifacts"},
			{Name: "artifact_version", Kind: task.Integer, Input: true, Doc: "its version; latest when not given"},
			{Name: "urls", Kind: task.List, Default: []any{}, User: true, Doc: "URLs to fetch: a URL, or `{\"url\": …, \"filename\": …}`"},
			{Name: "collected_artifacts_step_id", Kind: task.String, Doc: "older name of artifact_from_step_id"},
			{Name: "artifact_from_step_id", Kind: task.String, Doc: "load what that step collected"},
			{Name: "destination_path", Kind: task.String, Doc: "folder to load into; default /loaded, for urls /tmp/file_artifacts, for an environment's files /app/files"},
			{Name: "agent_name", Kind: task.String, Doc: "load into this agent"},
			{Name: "sandbox_name", Kind: task.String, Doc: "load into this sandbox"},
			{Name: "container_name", Kind: task.String, Doc: "load into this container that a step started on sandbox_name"},
			{Name: "snapshot_after_load", Kind: task.Boolean, Doc: "for an env: keep a snapshot of what was loaded"},
		},
		Refs: []task.Ref{
			{Path: "env_id", Kind: "env"},
			{Path: "artifact_id", Kind: "artifact", VersionField: "artifact_version"},
			{Path: "artifacts[].id", Kind: "artifact", VersionField: "version"},
		},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			a, stored, err := parseLoad(f)
			if err != nil {
				return nil, nil, err
			}
			a.deps = d
			return a, stored, nil
		},
		Preflight: func(ctx context.Context, s *task.Step) []string {
			var out []string
			for _, ref := range s.Action.(*load).artifacts {
				// One that is not there yet may be by the time of the run, which says so if not.
				if art, err := d.Artifacts.Get(ctx, ref); err == nil {
					if err := loadable(art); err != nil {
						out = append(out, err.Error())
					}
				}
			}
			return out
		},
		Check: func(s *task.Step) []string {
			a := s.Action.(*load)
			return append(absolute("destination_path", a.destination), a.nothingNamed()...)
		},
		Unsupported: func(s *task.Step) string {
			if s.Action.(*load).env != "" {
				return "load_artifact into an env (env_id)"
			}
			return ""
		},
	}
}

type load struct {
	deps                           Deps
	artifacts                      []artifact.Ref
	urls                           []fetch
	fromStep                       string
	destination                    string
	env, agent, sandbox, container string
}

func parseLoad(f *doc.Object) (*load, *doc.Object, error) {
	a := &load{env: f.Str("env_id"), agent: f.Str("agent_name"), sandbox: f.Str("sandbox_name"), container: f.Str("container_name"),
		destination: destination(f.Str("destination_path")), fromStep: f.Str("artifact_from_step_id")}
	bad := func(text string) (*load, *doc.Object, error) { return nil, nil, fault.New(fault.Invalid, "%s", text) }
	entries := f.Arr("artifacts")
	if id := f.Str("artifact_id"); id != "" {
		if len(entries) > 0 {
			return bad("load_artifact takes artifacts or artifact_id, not both")
		}
		entries = []any{doc.Of("id", id, "version", f.Value("artifact_version"))}
	}
	refs, err := artifactRefs(entries)
	if err != nil {
		return nil, nil, err
	}
	a.artifacts = refs
	if a.urls, err = fetches(f.Arr("urls")); err != nil {
		return nil, nil, err
	}
	older := f.Str("collected_artifacts_step_id")
	named := len(a.artifacts)+len(a.urls) > 0
	switch {
	case older != "" && (named || a.fromStep != ""):
		return bad("collected_artifacts_step_id is used alone, without artifacts, urls or artifact_from_step_id")
	case a.fromStep != "" && named:
		return bad("artifact_from_step_id is used alone, without artifacts or urls")
	case a.agent != "" && a.container != "":
		return bad("load_artifact takes agent_name or container_name, not both")
	case a.env == "" && a.agent == "" && a.sandbox == "":
		return bad("load_artifact needs a target: sandbox_name (with or without container_name), agent_name or env_id")
	case a.container != "" && a.sandbox == "":
		return bad("container_name needs sandbox_name, the sandbox it runs on")
	case (len(a.urls) > 0 || older != "") && a.agent == "" && a.sandbox == "":
		return bad("urls and collected_artifacts_step_id need a sandbox_name or agent_name to load into")
	}
	if a.fromStep == "" {
		a.fromStep = older
	}
	if entries == nil {
		entries = []any{}
	}
	stored := f.Clone().Set("artifacts", entries)
	stored.Delete("artifact_id")
	stored.Delete("artifact_version")
	return a, stored, nil
}

// artifactRefs reads `{id, version?}` entries; errors are Invalid.
func artifactRefs(entries []any) ([]artifact.Ref, error) {
	var out []artifact.Ref
	for i, e := range entries {
		o, ok := e.(*doc.Object)
		if !ok || o.Str("id") == "" {
			return nil, fault.New(fault.Invalid, "artifacts[%d] must be {\"id\": …, \"version\": …} with a non-empty id", i)
		}
		ref := artifact.Ref{ID: o.Str("id")}
		if v := o.Value("version"); v != nil {
			n, ok := o.Int("version")
			if !ok || n < 1 {
				return nil, fault.New(fault.Invalid, "artifacts[%d].version must be a whole number of at least 1, not %s", i, doc.Canonical(v))
			}
			ref.Version = n
		}
		out = append(out, ref)
	}
	return out, nil
}

func (a *load) nothingNamed() []string {
	if len(a.artifacts)+len(a.urls) == 0 && a.fromStep == "" {
		return []string{"load_artifact names nothing to load: give artifacts, artifact_id, urls or artifact_from_step_id"}
	}
	return nil
}

// override returns the step as this run's step_params change it.
func (a *load) override(r *task.Run) (*load, error) {
	o := *a
	if v, there := r.Param("artifacts"); there {
		list, ok := v.([]any)
		if v != nil && !ok {
			return nil, fault.New(fault.Invalid, "step_params artifacts must be a list, not a %s", doc.TypeName(v))
		}
		refs, err := artifactRefs(list)
		if err != nil {
			return nil, fault.At(err, "step_params")
		}
		o.artifacts, o.fromStep = refs, ""
	} else if v, there := r.Param("artifact_id"); there {
		id, _ := v.(string)
		if id == "" {
			return nil, fault.New(fault.Invalid, "step_params artifact_id must be a non-empty string")
		}
		version, _ := r.Param("artifact_version")
		refs, err := artifactRefs([]any{doc.Of("id", id, "version", version)})
		if err != nil {
			return nil, fault.At(err, "step_params")
		}
		o.artifacts, o.fromStep = refs, ""
	}
	if v, there := r.Param("urls"); there {
		list, ok := v.([]any)
		if v != nil && !ok {
			return nil, fault.New(fault.Invalid, "step_params urls must be a list, not a %s", doc.TypeName(v))
		}
		var err error
		if o.urls, err = fetches(list); err != nil {
			return nil, fault.At(err, "step_params")
		}
	}
	if v, there := r.Param("destination_path"); there {
		s, _ := v.(string)
		o.destination = destination(s)
	}
	if problems := append(absolute("destination_path", o.destination), o.nothingNamed()...); len(problems) > 0 {
		_, cleared := r.Param("urls")
		if !cleared || len(absolute("", o.destination)) > 0 {
			return nil, fault.New(fault.Invalid, "%s", problems[0])
		}
	}
	return &o, nil
}

// Execute stages everything and records what is where.
func (a *load) Execute(ctx context.Context, r *task.Run) error {
	return fault.At(a.execute(ctx, r), "load_artifact %q", r.StepID)
}

func (a *load) execute(ctx context.Context, r *task.Run) error {
	a, err := a.override(r)
	if err != nil {
		return err
	}
	if a.fromStep != "" {
		ref, err := produced(r, a.fromStep)
		if err != nil {
			return err
		}
		if ref.ID == "" {
			r.Log.Warn("nothing to load: step " + a.fromStep + " recorded that it collected nothing")
		} else {
			a.artifacts = []artifact.Ref{ref}
		}
	}
	loads := make([]artifact.Artifact, len(a.artifacts))
	for i, ref := range a.artifacts {
		if loads[i], err = a.deps.Artifacts.Get(ctx, ref); err != nil {
			return err
		}
		if err := loadable(loads[i]); err != nil {
			return err
		}
	}
	if len(loads)+len(a.urls) == 0 {
		return nil
	}
	p, err := a.deps.target(ctx, r, a.sandbox, a.container, a.agent)
	if err != nil {
		return err
	}
	var moved int64
	report := paced(r, "loading")
	progress := func(n int64) { report(moved+n, 0) }
	for _, art := range loads {
		n, err := a.stage(ctx, r, p, art, progress)
		if err != nil {
			return asRuntime(fault.At(err, "artifact %s", art.ID()))
		}
		moved += n
	}
	return asRuntime(a.fetchAll(ctx, r, p))
}

func loadable(a artifact.Artifact) error {
	switch a.Type() {
	case artifact.TypeFile, artifact.TypeUniverse, artifact.TypeEnvironment, artifact.TypeEnvironmentUniverse:
		return nil
	case artifact.TypeCLI:
		return fault.New(fault.Invalid, "artifact %s is a cli: it is installed into an agent, and needs agent_name and env_id", a.ID())
	}
	return fault.New(fault.Invalid, "Unsupported artifact type for loading: '%s' (%s)", a.Type(), a.ID())
}

// produced returns what a step recorded to load from; an empty ref when it recorded that there was nothing.
func produced(r *task.Run, step string) (artifact.Ref, error) {
	if v, there := r.Lookup("collected_artifacts", step); there {
		entry, _ := v.(*doc.Object)
		return refOf(entry.Obj("file_artifact_universe")), nil
	}
	if v, there := r.Lookup("env_snapshotted_universes", step); there {
		entry, _ := v.(*doc.Object)
		return refOf(entry), nil
	}
	return artifact.Ref{}, fault.New(fault.Invalid, "step %q recorded no artifact in this run: it must be an earlier collect_artifacts or snapshot step", step).WithClass("RuntimeError")
}

func refOf(o *doc.Object) artifact.Ref {
	v, _ := o.Int("version")
	return artifact.Ref{ID: o.Str("id"), Version: v}
}

// stage puts one artifact's files into the place and records them; it returns how many bytes moved.
func (a *load) stage(ctx context.Context, r *task.Run, p place.Place, art artifact.Artifact, progress func(int64)) (int64, error) {
	members, err := a.deps.Artifacts.Members(ctx, art)
	if err != nil {
		return 0, err
	}
	if err := a.deps.Artifacts.Measure(ctx, members); err != nil {
		return 0, err
	}
	env, isEnv := art.(*artifact.Environment)
	dest := a.destination
	switch {
	case dest != "":
	case isEnv:
		dest = environmentFolder
	case a.sandbox == "":
		dest = urlFolder
	default:
		dest = sandboxFolder
	}
	sources := make([]place.Source, len(members))
	names := make([]any, len(members))
	for i, m := range members {
		// A set that an older collection of absolute paths made holds them as names.
		m.Name = strings.TrimLeft(m.Name, "/")
		sources[i] = place.Source{Name: m.Name, Size: m.Size, SHA256: m.SHA256, Body: m.Open}
		names[i] = m.Name
	}
	if len(members) == 0 {
		r.Log.Warn("artifact has no files", "artifact", art.ID(), "version", art.Version())
	}
	var bytes int64
	placed, err := place.Put(ctx, p, dest, sources, progress)
	if err != nil {
		return 0, err
	}
	for _, f := range placed {
		bytes += f.Size
	}
	r.Log.Info("loaded", "artifact", art.ID(), "version", art.Version(), "files", len(placed), "bytes", bytes, "into", dest, "place", p.String())
	id, version := art.ID(), doc.Int(art.Version())
	if isEnv {
		r.Append(doc.Of("id", id, "version", version, "service_name", env.Name, "environment_name", env.Name, "agent_name", textOrNull(a.agent),
			"sandbox_name", textOrNull(a.sandbox), "container_name", textOrNull(a.container), "destination_path", dest,
			"file_count", doc.Int(len(names)), "files", names[:min(len(names), listedFiles)]), "loaded_environment_artifacts")
		return bytes, nil
	}
	loaded := doc.Of("id", id, "version", version, "artifact_type", art.Type(), "env_id", textOrNull(a.env), "agent_name", textOrNull(a.agent))
	if a.sandbox != "" {
		loaded.Set("sandbox_name", a.sandbox).Set("container_name", textOrNull(a.container)).Set("destination_path", dest).Set("files", names)
	} else {
		at := &doc.Object{}
		for _, f := range placed {
			at.Set(f.Name, path.Join(dest, f.Name))
		}
		loaded.Set("destination_path", dest).Set("files", at)
	}
	r.Append(loaded, "loaded_file_artifact_universes")
	return bytes, nil
}

// fetchAll downloads the step's URLs into the place, several at a time.
func (a *load) fetchAll(ctx context.Context, r *task.Run, p place.Place) error {
	if len(a.urls) == 0 {
		return nil
	}
	dest := a.destination
	if dest == "" {
		dest = urlFolder
	}
	client := a.deps.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchesAtOnce)
	names := make([]string, len(a.urls))
	for i, u := range a.urls {
		names[i] = u.name
		g.Go(func() error {
			target := dest + "/" + u.name
			if dest == "/" {
				target = "/" + u.name
			}
			report := paced(r, "fetching "+u.name)
			_, err := place.Fetch(gctx, p, u.url, target, client, func(n int64) { report(n, 0) })
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	agent := textOrNull(a.agent)
	if a.sandbox != "" {
		agent = nil
	}
	r.Append(doc.Of("step_id", r.StepID, "agent_name", agent, "sandbox_name", textOrNull(a.sandbox), "destination_path", dest, "files", toAny(names)), "loaded_urls")
	return nil
}
