package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"agentenv/artifact"
	"agentenv/config"
	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
)

// problems gathers what is wrong, one line each.
type problems struct{ lines []string }

func (p *problems) add(where, why string) {
	line := why
	if where != "" {
		line = where + ": " + why
	}
	p.lines = append(p.lines, line)
}

// err returns one Invalid error with every line, sorted, each once; nil when there is none.
func (p *problems) err() error {
	if len(p.lines) == 0 {
		return nil
	}
	sort.Strings(p.lines)
	var out []string
	for i, l := range p.lines {
		if i == 0 || l != p.lines[i-1] {
			out = append(out, l)
		}
	}
	return fault.New(fault.Invalid, "%s", strings.Join(out, "\n"))
}

// Parse reads a bundle's folder: listings and small config files, no store and no engine. home is the HOME variable. The error is
// Invalid and holds every problem, a line each, sorted.
func Parse(dir, home string) (*Bundle, error) {
	path, root, err := IDRoot(dir, home)
	if err != nil {
		return nil, err
	}
	return parseAt(path, root, dir)
}

// parseAt is Parse of a canonical path under a given id root.
func parseAt(path, root, shownAs string) (*Bundle, error) {
	s := scan(path, root, shownAs)
	s.p.lines = append(s.p.lines, s.names.lines...)
	if err := s.p.err(); err != nil {
		return nil, err
	}
	return s.b, nil
}

// scan reads a bundle and gathers its problems.
func scan(path, root, shownAs string) *scanner {
	s := &scanner{b: &Bundle{Dir: path, Root: root, shown: shownAs}}
	s.top()
	s.ids()
	s.aliases()
	return s
}

type scanner struct {
	b       *Bundle
	p       problems
	names   problems // of aliases.toml
	aliased bool     // there is an aliases.toml
}

// top lists the bundle's folder.
func (s *scanner) top() {
	entries, err := os.ReadDir(s.b.Dir)
	if err != nil {
		s.p.add(printable(s.b.Dir), fault.Reason(err).Error())
		return
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	reserved := map[string]string{"aliases.toml": "aliases.toml"}
	for _, k := range kinds {
		reserved[fold(k.dir)] = k.dir
	}
	found := 0
	for _, e := range entries {
		name := e.Name()
		right, known := reserved[fold(name)]
		switch {
		case strings.HasPrefix(name, ".") || artifact.Leaving(name):
		case !utf8.ValidString(name):
			s.p.add(printable(name), "the name is not UTF-8; rename it")
		case fold(name) == "bundle.toml":
			s.p.add(printable(name), "the name is reserved; a bundle has no file of its own settings")
		case known && name != right && names[right]:
			s.p.add(printable(name), "differs from "+right+" only in case or Unicode form; keep one of them")
		case known && name != right:
			s.p.add(printable(name), "rename to "+right+"; names are case-sensitive")
			found++
		case known || name == "provenance.json" || isReadme(name):
		default:
			s.b.Ignored = append(s.b.Ignored, name)
		}
	}
	s.b.Description = description(s.b.Dir, entries, &s.b.Ignored)
	for i := range kinds {
		if names[kinds[i].dir] {
			found++
			s.kindDir(&kinds[i])
		}
	}
	if names["aliases.toml"] {
		found++
		s.aliased = true
	}
	if found == 0 {
		s.p.add(printable(s.b.Dir), "not a bundle: it has none of envs/, agents/, artifacts/, skills/, tasks/, evals/")
	}
}

// statEntry follows links and says in words what stands in the way.
func statEntry(path string) (os.FileInfo, string) {
	info, err := os.Stat(path)
	switch {
	case err == nil && (info.IsDir() || info.Mode().IsRegular()):
		return info, ""
	case err == nil:
		return nil, "neither a regular file nor a folder"
	case errors.Is(err, syscall.ELOOP):
		return nil, "a loop of symlinks"
	case os.IsNotExist(err):
		return nil, "a broken symlink"
	}
	return nil, fault.Reason(err).Error()
}

func (s *scanner) kindDir(k *kind) {
	dir := filepath.Join(s.b.Dir, k.dir)
	info, why := statEntry(dir)
	if why == "" && !info.IsDir() {
		why = "not a folder"
	}
	if why != "" {
		s.p.add(k.dir, why)
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		s.p.add(k.dir, fault.Reason(err).Error())
		return
	}
	seen := map[string]string{}
	var found []*Entity
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || artifact.Leaving(e.Name()) {
			continue
		}
		ent := s.entity(k, dir, e.Name())
		if ent == nil {
			continue
		}
		if other, taken := seen[fold(ent.Name)]; taken {
			s.p.add(ent.Path, "differs from "+other+" only in case or Unicode form; keep one of them")
			continue
		}
		seen[fold(ent.Name)] = ent.Path
		found = append(found, ent)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	s.b.Entities = append(s.b.Entities, found...)
}

// entity parses one entry of a kind folder; nil when it is none or cannot be.
func (s *scanner) entity(k *kind, dir, raw string) *Entity {
	shownPath := k.dir + "/" + printable(norm.NFC.String(raw))
	if !utf8.ValidString(raw) {
		s.p.add(k.dir+"/"+printable(raw), "the name is not UTF-8; rename it")
		return nil
	}
	disk := filepath.Join(dir, raw)
	info, why := statEntry(disk)
	if why != "" {
		s.p.add(shownPath, why)
		return nil
	}
	e := &Entity{b: s.b, Store: k.store, Name: norm.NFC.String(raw), Path: shownPath, Type: k.typ, kind: k, disk: disk}
	if k.suffix != "" {
		switch {
		case info.IsDir():
			s.p.add(shownPath, "a folder, where a "+k.suffix+" file is expected")
			return nil
		case strings.HasSuffix(raw, k.suffix):
		case strings.HasSuffix(fold(raw), k.suffix):
			s.p.add(shownPath, "rename it to end in "+k.suffix+"; names are case-sensitive")
			return nil
		default:
			s.b.Ignored = append(s.b.Ignored, k.dir+"/"+raw)
			return nil
		}
		e.Name = strings.TrimSuffix(e.Name, k.suffix)
		if e.Name == "" {
			s.p.add(shownPath, "a name before "+k.suffix+" is missing")
			return nil
		}
		if k.store == StoreTask {
			s.task(e)
		} else {
			s.eval(e)
		}
		return e
	}
	if !info.IsDir() {
		s.b.Ignored = append(s.b.Ignored, k.dir+"/"+raw)
		return nil
	}
	if k.store == StoreArtifact && strings.Contains(e.Name, "__") {
		s.p.add(shownPath, `"__" is reserved for derived ids in artifact and skill names; rename the folder (e.g. `+
			printable(strings.ReplaceAll(e.Name, "__", "-"))+`)`)
	}
	s.folder(e)
	return e
}

// folder parses an env, agent, artifact or skill.
func (s *scanner) folder(e *Entity) {
	k := e.kind
	entries, err := os.ReadDir(e.disk)
	if err != nil {
		s.p.add(e.Path, fault.Reason(err).Error())
		return
	}
	names := map[string]bool{}
	for _, c := range entries {
		names[c.Name()] = true
	}
	if k.config != "" && names[k.config] {
		e.config = s.toml(e, k.config)
	}
	hasConfig := k.config != "" && names[k.config]
	s.reservedCase(e, entries, names, hasConfig)
	if k.store == StoreEnv || k.store == StoreAgent {
		if !names["Dockerfile"] && !hasConfig {
			article := "an "
			s.p.add(e.Path, "needs a Dockerfile or "+article+k.config)
		}
		if names["Dockerfile"] {
			if _, why := statEntry(filepath.Join(e.disk, "Dockerfile")); why != "" {
				s.p.add(e.Path+"/Dockerfile", why)
			}
		}
		if t := e.config.Str("type"); t != "" {
			e.Type = t
		}
		return
	}
	files, folders := 0, 0
	only := []string{}
	for _, c := range entries {
		if artifact.Leaving(c.Name()) {
			only = append(only, c.Name())
			continue
		}
		if c.Name() == k.config {
			continue
		}
		info, why := statEntry(filepath.Join(e.disk, c.Name()))
		switch {
		case why != "":
			s.p.add(e.Path+"/"+printable(c.Name()), why)
			files++
		case info.IsDir():
			folders++
		default:
			files++
		}
	}
	if k.dir == "skills" {
		if !names["SKILL.md"] {
			s.p.add(e.Path, "a skill needs SKILL.md")
		}
		return
	}
	switch t := e.config.Str("type"); {
	case t != "":
		e.Type = t
	case names["Dockerfile"] || e.config.Value("ref") != nil:
		e.Type = "docker_image"
	case files == 1 && folders == 0:
		e.Type = "file"
	case files+folders > 0:
		e.Type = "file_artifact_universe"
	default:
		why := "an artifact folder has nothing in it"
		if len(only) > 0 {
			why += " (.DS_Store, Thumbs.db, __pycache__, desktop.ini don't count)"
		}
		s.p.add(e.Path, why)
		return
	}
	if e.Type == "skill" || names["SKILL.md"] && e.Type != "docker_image" {
		s.p.add(e.Path, "a skill belongs in skills/; move the folder there")
	}
}

// reservedCase refuses files whose names mean something only in another case.
func (s *scanner) reservedCase(e *Entity, entries []os.DirEntry, names map[string]bool, hasConfig bool) {
	decides := []string{}
	if e.kind.config != "" {
		decides = append(decides, e.kind.config)
	}
	if e.kind.dir == "skills" {
		decides = append(decides, "SKILL.md")
	} else {
		decides = append(decides, "Dockerfile")
	}
	for _, c := range entries {
		for _, right := range decides {
			if c.Name() == right || fold(c.Name()) != fold(right) {
				continue
			}
			idle := right == "Dockerfile" && !names[right] && (e.config.Str("type") != "" || hasConfig && e.Store != StoreArtifact)
			switch {
			case idle:
			case names[right]:
				s.p.add(e.Path+"/"+printable(c.Name()), "differs from "+right+" only in case or Unicode form; keep one of them")
			default:
				s.p.add(e.Path+"/"+printable(c.Name()), "rename to "+right+"; names are case-sensitive")
			}
		}
	}
}

// toml reads an entity's config file; nil when it cannot be.
func (s *scanner) toml(e *Entity, name string) *doc.Object {
	where := e.Path
	if name != "" {
		where += "/" + name
	}
	text, err := config.ReadFile(filepath.Join(e.disk, name))
	if err != nil {
		s.p.add(where, err.Error())
		return nil
	}
	o, err := config.ParseTOML(text)
	if err != nil {
		s.p.add(where, err.Error())
		return nil
	}
	for _, key := range []string{"type", "id"} {
		if v, ok := o.Get(key); ok {
			if t, isText := v.(string); !isText || t == "" {
				s.p.add(where, key+" must be a text that is not empty")
				o.Delete(key)
			}
		}
	}
	return o
}

func (s *scanner) task(e *Entity) {
	text, err := config.ReadFile(e.disk)
	if err != nil {
		s.p.add(e.Path, err.Error())
		return
	}
	v, err := doc.Parse(text, doc.Options{Strict: true})
	if err != nil {
		s.p.add(e.Path, "not valid JSON: "+printable(err.Error()))
		return
	}
	steps, ok := v.([]any)
	if o, isObject := v.(*doc.Object); isObject {
		steps, ok = o.Value("steps").([]any)
		e.extra = o.Clone()
		e.extra.Delete("steps")
		for _, k := range e.extra.Keys() {
			if k != "max_parallel_steps" && k != "fail_fast" {
				s.p.add(e.Path, "unknown key "+shown(k)+"; a task in object form takes steps, max_parallel_steps and fail_fast")
			}
		}
	}
	for _, st := range steps {
		if _, isObject := st.(*doc.Object); !isObject {
			ok = false
		}
	}
	switch {
	case !ok:
		s.p.add(e.Path, "a task file must be a JSON array of step objects, or an object that holds it under \"steps\"")
	case len(steps) == 0:
		s.p.add(e.Path, "the task has no steps; give it at least one")
	}
	e.steps = steps
}

func (s *scanner) eval(e *Entity) {
	o := s.toml(e, "")
	if o == nil {
		return
	}
	e.config = o
	for _, k := range o.Keys() {
		if k != "tasks" && k != "type" && k != "id" {
			s.p.add(e.Path, "unknown key "+shown(k)+"; an eval takes tasks, type and id")
		}
	}
	if t := o.Str("type"); t != "" && t != "eval" {
		s.p.add(e.Path, "type is "+shown(t)+"; an eval's is eval")
	}
	v, given := o.Get("tasks")
	list, ok := v.([]any)
	switch {
	case !given:
		s.p.add(e.Path, `tasks is missing; it lists the names of the eval's tasks`)
	case !ok:
		s.p.add(e.Path, "tasks must be a list of task names")
	case len(list) == 0:
		s.p.add(e.Path, "tasks is empty; name at least one task")
	}
	e.tasks = list
}

// ids gives every entity its id and looks for two that share one.
func (s *scanner) ids() {
	taken := map[string]string{}
	names := map[string]string{}
	for _, e := range s.b.Entities {
		if id := e.config.Str("id"); id != "" {
			e.ID = id
			s.declared(e)
		} else {
			e.ID = s.b.Root + "/" + e.Name
			if err := store.CheckAuthoredID(e.ID); err != nil {
				if len(e.ID) > 4000 {
					s.p.add(e.Path, "its id would be too long; give it a shorter name or move the bundle to a shorter path")
				} else {
					s.p.add(e.Path, "the name "+shown(e.Name)+" cannot be part of an id: "+short(err))
				}
			}
		}
		if other, dup := taken[e.Store+" "+e.ID]; dup {
			s.p.add(e.Path, "has the id "+shown(e.ID)+" of "+other)
		}
		taken[e.Store+" "+e.ID] = e.Path
		if e.Store == StoreArtifact {
			if other, dup := names[fold(e.Name)]; dup && !strings.HasPrefix(other, e.kind.dir+"/") {
				s.p.add(e.Path, "has the name of "+other+"; artifacts and skills share one name space")
			}
			names[fold(e.Name)] = e.Path
		}
	}
}

func (s *scanner) declared(e *Entity) {
	where := e.Path
	if e.kind.config != "" {
		where += "/" + e.kind.config
	}
	switch err := store.CheckAuthoredID(e.ID); {
	case !store.IsLocal(e.ID):
		s.p.add(where, "id "+shown(e.ID)+" must begin with "+store.LocalPrefix)
	case err != nil:
		s.p.add(where, "id "+shown(e.ID)+" is not valid: "+short(err))
	case !norm.NFC.IsNormalString(e.ID):
		s.p.add(where, "id "+shown(e.ID)+" is not in Unicode form NFC")
	case e.Store == StoreArtifact && strings.Contains(e.ID[strings.LastIndexByte(e.ID, '/')+1:], "__"):
		s.p.add(where, "id "+shown(e.ID)+` has "__" in its last part, which is reserved for derived ids`)
	}
}

// short cuts an error to a length that fits a line.
func short(err error) string {
	s := printable(err.Error())
	if r := []rune(s); len(r) > 160 {
		s = string(r[:160]) + "…"
	}
	return s
}
