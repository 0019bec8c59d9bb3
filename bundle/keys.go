package bundle

import (
	"sort"
	"strings"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/store/doc"
)

// valueKind is what a TOML key takes.
type valueKind int

const (
	text        valueKind = iota
	textTable             // a table of texts
	imageValue            // see imageProblem
	refValue              // an id or { <kind> = id, version = n }
	refList               // a list of those
	modelsTable           // the metadata of an agent
)

// key is one key of a type's TOML.
type key struct {
	name     string
	kind     valueKind
	required bool
	ref      string // store that a refValue or refList names
	typ      string // type it must have, "" = any
}

// typeKeys are the keys of each type beside type and id. A type that is not here is none of ours.
var typeKeys = map[string][]key{
	"env mcp_server": {{name: "image", kind: imageValue}, {name: "environment_name"}, {name: "env_provider_type"}},
	"env website": {{name: "backend_image", kind: imageValue}, {name: "frontend_image", kind: imageValue}, {name: "environment_name"},
		{name: "env_provider_type"}},
	"env multi": {{name: "mcp_server_envs", kind: refList, ref: StoreEnv}, {name: "website_envs", kind: refList, ref: StoreEnv}, {name: "name"},
		{name: "env_provider_type"}},
	"env computer_driver": {{name: "module", required: true}},
	"agent a2a_agent":     {{name: "image", kind: imageValue}, {name: "default_env_vars", kind: textTable}, {name: "metadata", kind: modelsTable}},

	"artifact file":                   {{name: "description"}},
	"artifact file_artifact_universe": nil,
	"artifact docker_image":           {{name: "description"}, {name: "ref"}},
	"artifact skill":                  nil,
	"artifact environment": {{name: "environment_name", required: true}, {name: "file", kind: refValue, ref: StoreArtifact, typ: artifact.TypeFile},
		{name: "description"}},
	"artifact environment_universe": {{name: "environment_artifacts", kind: refList, ref: StoreArtifact, typ: artifact.TypeEnvironment}},
	"artifact cli":                  {{name: "command_name", required: true}, {name: "entrypoint", required: true}},
}

// storedNames maps keys of stored documents to what a TOML says instead.
var storedNames = map[string]map[string]string{
	"environment": {"service_name": "environment_name", "file_artifact_id": "file", "file_artifact_ref": "file"},
	"environment_universe": {"service_artifact_refs": "environment_artifacts", "environment_artifact_refs": "environment_artifacts",
		"service_artifact_ids": "environment_artifacts", "metadata": "a metadata/<key>/ folder", "metadata_refs": "a metadata/<key>/ folder"},
	"mcp_server": {"service_name": "environment_name"},
	"website":    {"service_name": "environment_name"},
}

// checkKeys reports what is wrong with an entity's TOML.
func checkKeys(e *Entity, p *problems) {
	if e.Store == StoreTask || e.Store == StoreEval {
		return
	}
	where := e.Path
	keys, known := typeKeys[e.Store+" "+e.Type]
	if !known {
		switch {
		case e.Store == StoreEnv && (e.Type == "gateway_server" || e.Type == "service_db"):
			p.add(where, "envs of the type "+e.Type+" come from the configuration, not from a bundle")
		default:
			p.add(where, shown(e.Type)+" is not a known "+e.Store+" type; there are "+strings.Join(knownTypes(e.Store), ", "))
		}
		return
	}
	if e.config == nil {
		for _, k := range keys {
			if k.required {
				p.add(where, "needs a "+e.kind.config+" with "+k.name)
			}
		}
		return
	}
	where += ": " + e.kind.config
	takes := map[string]key{}
	for _, k := range keys {
		takes[k.name] = k
		if k.required && e.config.Value(k.name) == nil {
			p.add(where, k.name+" is missing; "+article(e.Type)+" "+e.Type+" needs it")
		}
	}
	for _, name := range e.config.Keys() {
		if name == "type" || name == "id" {
			continue
		}
		k, ok := takes[name]
		if !ok {
			if better := storedNames[e.Type][name]; better != "" {
				p.add(where, "unknown key "+shown(name)+"; write "+better+" instead")
				continue
			}
			p.add(where, "unknown key "+shown(name)+"; "+article(e.Type)+" "+e.Type+" "+e.Store+" takes "+listKeys(keys))
			continue
		}
		if why := k.problem(e.config.Value(name)); why != "" {
			p.add(where, name+" "+why)
		}
	}
	checkType(e, where, p)
}

// checkType holds the rules of single types that go beyond single keys.
func checkType(e *Entity, where string, p *problems) {
	c := e.config
	switch e.Store + " " + e.Type {
	case "artifact environment":
		if c.Value("file") != nil && c.Value("description") != nil {
			p.add(where, "description belongs to a file of the folder, and file names another artifact; drop one of them")
		}
		if v, ok := c.Value("environment_name").(string); ok && strings.TrimSpace(v) == "" {
			p.add(where, "environment_name is empty")
		}
	case "env multi":
		if len(c.Arr("mcp_server_envs"))+len(c.Arr("website_envs")) == 0 {
			p.add(where, "a multi env needs at least one of mcp_server_envs and website_envs")
		}
		if v, ok := c.Value("name").(string); ok && (v == "" || strings.ContainsAny(v, " \t\n\r")) {
			p.add(where, "name must not be empty nor hold white space")
		}
	case "env mcp_server", "env website":
		if v := c.Str("env_provider_type"); v != "" && v != "gateway" {
			p.add(where, "env_provider_type "+shown(v)+" is not known; it is gateway")
		}
	case "env computer_driver":
		if v := c.Str("module"); v != "" && strings.Count(v, ":") != 1 {
			p.add(where, "module "+shown(v)+" must be <file>:<class>")
		}
	}
}

func knownTypes(store string) []string {
	var out []string
	for k := range typeKeys {
		if t, ok := strings.CutPrefix(k, store+" "); ok {
			out = append(out, t)
		}
	}
	sort.Strings(out)
	return out
}

func article(word string) string {
	if word != "" && strings.ContainsRune("aeiou", rune(word[0])) {
		return "an"
	}
	return "a"
}

func listKeys(keys []key) string {
	names := make([]string, 0, len(keys)+2)
	for _, k := range keys {
		names = append(names, k.name)
	}
	names = append(names, "type", "id")
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// problem says what is wrong with a key's value, "" when nothing is.
func (k key) problem(v any) string {
	switch k.kind {
	case text:
		if _, ok := v.(string); !ok {
			return "must be a text, not " + doc.TypeName(v)
		}
	case textTable:
		o, ok := v.(*doc.Object)
		if !ok {
			return "must be a table of texts, not " + doc.TypeName(v)
		}
		for _, n := range o.Keys() {
			if why := agent.VariableProblem(n); why != "" {
				return "is no table of variables: " + printable(why)
			}
			if _, ok := o.Value(n).(string); !ok {
				return "must be a table of texts, and " + shown(n) + " is " + doc.TypeName(o.Value(n))
			}
		}
	case imageValue:
		return imageProblem(v)
	case refValue:
		_, _, why := tomlRef(k.ref, v)
		return why
	case refList:
		list, ok := v.([]any)
		if !ok {
			return "must be a list, not " + doc.TypeName(v)
		}
		for _, x := range list {
			if _, _, why := tomlRef(k.ref, x); why != "" {
				return why
			}
		}
	case modelsTable:
		return modelsProblem(v)
	}
	return ""
}

func imageProblem(v any) string {
	const forms = `must be a name, { dockerfile = "<path>" }, { ref = "<registry/image:tag>" } or { artifact = "<id>", version = n }`
	if s, ok := v.(string); ok && s != "" {
		return ""
	}
	o, ok := v.(*doc.Object)
	if !ok {
		return forms
	}
	_, isArtifact := o.Get("artifact")
	switch {
	case isArtifact:
		_, _, why := tomlRef(StoreArtifact, v)
		return why
	case o.Len() == 1 && o.Str("dockerfile") != "":
		if artifact.CheckRelative(o.Str("dockerfile")) != nil {
			return "dockerfile " + shown(o.Str("dockerfile")) + " must be a path inside the folder"
		}
		return ""
	case o.Len() == 1 && o.Str("ref") != "":
		if artifact.RegistryOf(o.Str("ref")) == "" {
			return "ref " + shown(o.Str("ref")) + " must spell out its registry, as docker.io/library/… does"
		}
		return ""
	}
	return forms
}

func modelsProblem(v any) string {
	o, ok := v.(*doc.Object)
	if !ok {
		return "must be a table, not " + doc.TypeName(v)
	}
	for _, n := range o.Keys() {
		x := o.Value(n)
		switch n {
		case "default_model":
			ok = isText(x)
		case "min_disk_size_gb":
			number, isNumber := x.(doc.Number)
			if isNumber && !(number.Finite() && number.Float64() > 0) {
				return n + " must be greater than 0, not " + string(number)
			}
			ok = isNumber
		case "takes_credentials":
			_, ok = x.(bool)
		default:
			return "holds the unknown key " + shown(n) + "; it takes default_model, min_disk_size_gb and takes_credentials"
		}
		if !ok {
			return n + " has the wrong type, " + doc.TypeName(x)
		}
	}
	return ""
}

func isText(v any) bool { _, ok := v.(string); return ok }

// tomlRef reads a reference in a TOML: an id, or { <kind> = "<id>", version = n }. version 0 is none.
func tomlRef(store string, v any) (id string, version int64, why string) {
	if s, ok := v.(string); ok && s != "" {
		return s, 0, ""
	}
	if o, ok := v.(*doc.Object); ok && o.Str(store) != "" {
		n, given := o.Get("version")
		num, isInt := o.Int("version")
		switch {
		case !given && o.Len() == 1:
			return o.Str(store), 0, ""
		case given && o.Len() == 2 && isInt && num >= 1 && n.(doc.Number).IsInt():
			return o.Str(store), num, ""
		}
	}
	got, _ := doc.Compact(v)
	return "", 0, `must be "<id>" or { ` + store + ` = "<id>", version = n } with n ≥ 1, not ` + shown(string(got))
}
