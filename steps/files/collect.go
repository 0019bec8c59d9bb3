package files

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

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
		Summary: "Copy produced files out of a sandbox into a file_artifact_universe",
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
			{Name: "exclude_basenames", Kind: task.List, Items: task.String, Default: []any{}, Doc: "file names to leave out of a manifest or an enumeration"},
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
			switch a := s.Action.(*collect); {
			case a.env != "":
				return "collect_artifacts from an env (env_id)"
			case a.sandbox == "":
				return "collect_artifacts from an agent; name a sandbox with sandbox_name"
			}
			return ""
		},
	}
}

type collect struct {
	deps                    Deps
	sandbox, container, env string
	base, seedKey           string
	paths                   []string
	manifest, suffix        string
	exclude                 []string
}

func parseCollect(f *doc.Object) (*collect, *doc.Object, error) {
	a := &collect{sandbox: f.Str("sandbox_name"), container: f.Str("container_name"), env: f.Str("env_id"), base: folder(f.Str("base_path")),
		seedKey: f.Str("artifacts_key"), paths: texts(f.Arr("artifact_paths")), manifest: f.Str("manifest_step_id"), suffix: f.Str("universe_id_suffix")}
	a.exclude = texts(f.Arr("exclude_basenames"))
	slices.Sort(a.exclude)
	a.exclude = slices.Compact(a.exclude)
	agent := f.Str("agent_name")
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
	case a.base == "":
		return bad("base_path must not be empty")
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

// item is one thing to collect. Everything below a folder takes its key and object name as a prefix.
type item struct {
	key, source, object string
}

// below returns what a file under the item is called.
func (it item) below(name string) (key, object string) {
	if name == "" {
		return it.key, it.object
	}
	if !utf8.ValidString(name) {
		name = artifact.SafeName(name)
	}
	join := func(a string) string {
		if a == "" || strings.HasSuffix(a, "/") {
			return a + name
		}
		return a + "/" + name
	}
	return join(it.key), join(it.object)
}

// gathered is what one collection found.
type gathered struct {
	collection *artifact.Collection
	absent     []string // listed sources that are not there
	broken     []string // sources that are there and could not be collected whole
	leftOut    []any    // {path, reason}
	leftCount  int
}

func (g *gathered) leave(r *task.Run, at, reason string) {
	r.Log.Warn("left out: "+at, "reason", reason)
	if g.leftCount++; len(g.leftOut) < listedLeftOut {
		if !utf8.ValidString(at) {
			at = "/" + artifact.SafeName(at)
		}
		g.leftOut = append(g.leftOut, doc.Of("path", at, "reason", reason))
	}
}

// fail notes a source that could not be collected whole: it is left out and fails the step.
func (g *gathered) fail(r *task.Run, at, reason string) {
	g.broken = append(g.broken, at)
	g.leave(r, at, reason)
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
	items, listed, err := a.resolve(r)
	if err != nil {
		return err
	}
	p, err := a.deps.target(ctx, r, a.sandbox, a.container)
	if err != nil {
		return err
	}
	g := &gathered{collection: &artifact.Collection{}}
	wanted := items
	switch {
	case len(items) > 0:
		if items, err = a.expand(ctx, p, items, g); err != nil {
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

// resolve returns what the step is to collect; listed says that a list was given, even one with nothing left in it.
func (a *collect) resolve(r *task.Run) (items []item, listed bool, err error) {
	var entries []string
	over, there := r.Param("artifact_paths")
	seed, _ := r.Metadata("seed", a.seedKey).(string)
	switch {
	case there && over != nil:
		if s, ok := over.(string); ok {
			entries = []string{s}
		} else if list, ok := over.([]any); ok {
			entries = texts(list)
		} else {
			return nil, false, fault.New(fault.Invalid, "step_params artifact_paths must be a list or a string, not a %s", doc.TypeName(over))
		}
	case a.manifest != "":
		items, err = a.fromManifest(r)
		return items, true, err
	case seed != "":
		for _, e := range strings.Split(seed, ",") {
			if e = strings.TrimSpace(e); e != "" {
				entries = append(entries, e)
			}
		}
	default:
		entries = a.paths
	}
	for _, e := range entries {
		if isURL(e) || e == "" {
			continue
		}
		it, err := a.entry(e)
		if err != nil {
			return nil, true, err
		}
		items = append(items, it)
	}
	return items, len(entries) > 0, nil
}

func isURL(e string) bool {
	scheme, _, ok := strings.Cut(e, "://")
	if !ok || scheme == "" || !isLetter(scheme[0]) {
		return false
	}
	return strings.IndexFunc(scheme, func(c rune) bool {
		return !(c < 128 && isLetter(byte(c)) || c >= '0' && c <= '9' || strings.ContainsRune("+.-", c))
	}) < 0
}

func isLetter(c byte) bool { return c|32 >= 'a' && c|32 <= 'z' }

// entry reads one entry of a list. A ".." part is refused: what it means depends on links inside the sandbox, and it would
// name objects outside the collection.
func (a *collect) entry(e string) (item, error) {
	if slices.Contains(strings.Split(e, "/"), "..") {
		return item{}, fault.New(fault.Invalid, "the entry %q holds \"..\"; write the path without it", e)
	}
	if strings.ContainsRune(e, 0) {
		return item{}, fault.New(fault.Invalid, "the entry %q holds a NUL", e)
	}
	if path.IsAbs(e) {
		return item{key: e, source: folder(e), object: strings.TrimLeft(e, "/")}, nil
	}
	return item{key: e, source: folder(path.Join(a.base, e)), object: e}, nil
}

// fromManifest takes the paths from the latest structured output of a step.
func (a *collect) fromManifest(r *task.Run) ([]item, error) {
	var out *doc.Object
	for _, p := range r.PromptResponses() {
		if p.Str("step_id") == a.manifest {
			out = p.Obj("structured_output")
		}
	}
	if out == nil {
		out, _ = r.Metadata("structured_outputs", a.manifest).(*doc.Object)
	}
	manifest := out.Obj("artifacts")
	var items []item
	taken := map[string]bool{}
	for _, name := range manifest.Keys() {
		src, ok := manifest.Value(name).(string)
		if !ok || !path.IsAbs(src) || strings.Contains(src, "*") || slices.Contains(a.exclude, path.Base(src)) {
			continue
		}
		it, err := a.entry(src)
		if err != nil {
			return nil, fault.At(err, "manifest of step %q", a.manifest)
		}
		it.key = name
		if rel, ok := strings.CutPrefix(src, strings.TrimRight(a.base, "/")+"/"); ok {
			it.object = rel
		} else if it.object = path.Base(src); taken[it.object] {
			// Two files of one name outside base_path keep their folders in the object name.
			it.object = strings.TrimLeft(src, "/")
		}
		taken[it.object] = true
		items = append(items, it)
	}
	if len(items) == 0 {
		return nil, fault.New(fault.Invalid, "the manifest of step %q names no file to collect (structured_output.artifacts: a map of names to absolute paths)", a.manifest)
	}
	return items, nil
}

// enumerate collects every regular file below base_path. A folder that is not there is no failure; one that cannot be listed is.
func (a *collect) enumerate(ctx context.Context, r *task.Run, p place.Place, id string, g *gathered) error {
	e, err := p.Stat(ctx, a.base, true)
	switch {
	case fault.Is(err, fault.NotFound):
		r.Log.Warn("nothing collected: " + a.base + " is not there")
		return nil
	case err != nil:
		return fault.At(err, "list %s", a.base)
	case e.Kind != place.Dir:
		r.Log.Warn("nothing collected: " + a.base + " is a " + string(e.Kind) + ", not a folder")
		return nil
	}
	skip := func(_, name string) bool { return slices.Contains(a.exclude, path.Base(name)) }
	if err := a.gather(ctx, r, p, id, []item{{source: a.base}}, skip, g); err != nil {
		return err
	}
	if len(g.collection.Files) == 0 {
		r.Log.Warn("nothing collected: " + a.base + " holds no files")
	}
	return nil
}

// gather streams the items out of the place into the object store, then checks that what was read is what is there.
func (a *collect) gather(ctx context.Context, r *task.Run, p place.Place, id string, items []item, skip func(root, name string) bool, g *gathered) error {
	if len(items) == 0 {
		return nil
	}
	roots := make([]string, len(items))
	for i, it := range items {
		roots[i] = it.source
	}
	tree, err := p.Get(ctx, place.GetRequest{Roots: roots, Follow: true})
	if err != nil {
		return err
	}
	defer tree.Close()
	sizes := map[string]int64{}
	taken := map[string]string{} // what each key was collected from
	var moved int64
	var reading string
	report := paced(r, "collecting")
	again := &recheck{place: p, items: items, sizes: sizes}
	defer again.stop()
	next := func() (artifact.Collect, error) {
		for {
			e, err := tree.Next()
			if err == io.EOF {
				again.start(ctx)
			}
			if err != nil {
				return artifact.Collect{}, err
			}
			it := items[e.Root]
			at := it.source
			if e.Name != "" {
				at = strings.TrimRight(it.source, "/") + "/" + e.Name
			}
			switch {
			case e.Err != nil && e.Name == "" && fault.Is(e.Err, fault.NotFound):
				r.Log.Warn("File not found: " + at)
				g.absent = append(g.absent, at)
				continue
			case e.Err != nil:
				g.fail(r, at, e.Err.Error())
				continue
			case e.Kind == place.Dir:
				continue
			case skip != nil && skip(it.source, e.Name):
				continue
			case e.Kind == place.Symlink:
				g.leave(r, at, "a symlink to "+place.Text([]byte(e.Link)))
				continue
			case e.Kind != place.File && e.Name == "":
				g.fail(r, at, "it is a "+string(e.Kind))
				continue
			case e.Kind != place.File:
				g.leave(r, at, "it is a "+string(e.Kind))
				continue
			}
			key, object := it.below(e.Name)
			if taken[key] == at {
				continue // two entries name one file
			}
			taken[key] = at
			sizes[at] = e.Size
			reading = at
			moved += e.Size
			report(moved, len(sizes))
			// A file that grows must not end the whole collection: recheck finds it.
			return artifact.Collect{Key: key, ObjectName: object, Size: e.Size, Body: io.LimitReader(tree, e.Size)}, nil
		}
	}
	got, err := a.deps.Artifacts.PutCollected(ctx, id, r.Instance, next)
	if err != nil {
		if reading != "" && ctx.Err() == nil {
			return fault.At(err, "%s", reading)
		}
		return err
	}
	if err := tree.Close(); err != nil {
		return err
	}
	g.collection = got
	if got.RecordErr != nil {
		r.Log.Warn("collected files are stored, the artifact over them is not", "error", got.RecordErr)
	}
	r.Log.Info("collected", "files", len(got.Files), "bytes", moved, "from", p.String(), "artifact", id)
	changed, err := again.wait()
	if err != nil {
		return err
	}
	for _, c := range changed {
		g.fail(r, c.at, c.reason)
	}
	return nil
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
	if len(wanted) == 0 || len(g.collection.Files) > 0 {
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

// expand replaces patterns by what they match: an entry is a pattern when it reads like one and nothing has that very name.
func (a *collect) expand(ctx context.Context, p place.Place, items []item, g *gathered) ([]item, error) {
	var out []item
	for _, it := range items {
		if !strings.ContainsAny(it.source, "*?[{") {
			out = append(out, it)
			continue
		}
		if _, err := p.Stat(ctx, it.source, true); err == nil || !fault.Is(err, fault.NotFound) {
			out = append(out, it)
			continue
		}
		found, err := glob(ctx, p, it)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			g.absent = append(g.absent, it.source)
		}
		out = append(out, found...)
	}
	return out, nil
}
