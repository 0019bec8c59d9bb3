package agent

import (
	"fmt"
	"strings"

	"agentenv/config"
	"agentenv/fault"
	"agentenv/store/doc"
)

// Manifest is what an agent.toml says.
type Manifest struct {
	Image      any         // as written: a text or a table; nil = the folder's Dockerfile
	DefaultEnv *doc.Object // variables of its container, texts in the file's order; never nil
	Metadata   *doc.Object // default_model, min_disk_size_gb and takes_credentials where given; never nil
}

// ParseManifest reads the text of an agent.toml: image, [default_env_vars] with texts, and [metadata] with default_model (text), min_disk_size_gb
// (number) and takes_credentials (boolean). Anything else is refused; the Invalid error lists every problem at once.
func ParseManifest(text []byte) (*Manifest, error) {
	o, err := config.ParseTOML(text)
	if err != nil {
		return nil, fault.At(err, "agent.toml")
	}
	m := &Manifest{DefaultEnv: doc.Of(), Metadata: doc.Of()}
	var problems []string
	wrong := func(key string, v any, want string) {
		problems = append(problems, fmt.Sprintf("%s must be %s, not %s", key, want, doc.TypeName(v)))
	}
	for _, key := range o.Keys() {
		v := o.Value(key)
		table, isTable := v.(*doc.Object)
		switch key {
		case "image":
			if s, ok := v.(string); !isTable && (!ok || s == "") {
				wrong(key, v, "a text that is not empty or a table")
			}
			m.Image = v
		case "default_env_vars":
			if !isTable {
				wrong(key, v, "a table of texts")
				continue
			}
			for _, name := range table.Keys() {
				if why := VariableProblem(name); why != "" {
					problems = append(problems, key+": "+why)
				}
				if _, ok := table.Value(name).(string); !ok {
					wrong(key+"."+name, table.Value(name), "a text")
				}
			}
			m.DefaultEnv = table
		case "metadata":
			if !isTable {
				wrong(key, v, "a table")
				continue
			}
			for _, name := range table.Keys() {
				known, ok := metadataType(name, table.Value(name))
				if known == "" {
					problems = append(problems, fmt.Sprintf("metadata.%s is unknown; there are default_model, min_disk_size_gb and takes_credentials", name))
				} else if !ok {
					problems = append(problems, fmt.Sprintf("metadata.%s must be %s, not %s", name, known, brief(table.Value(name))))
				}
			}
			m.Metadata = table
		default:
			problems = append(problems, fmt.Sprintf("%s is unknown; there are image, default_env_vars and metadata", key))
		}
	}
	if len(problems) > 0 {
		return nil, fault.New(fault.Invalid, "agent.toml: %s", strings.Join(problems, "; "))
	}
	return m, nil
}

// brief is a number as it was written, and the type of anything else.
func brief(v any) string {
	if n, ok := v.(doc.Number); ok {
		return string(n)
	}
	return doc.TypeName(v)
}

// metadataType returns what a key of [metadata] takes, "" for one that is unknown, and whether v is that.
func metadataType(key string, v any) (want string, ok bool) {
	switch key {
	case "default_model":
		_, ok = v.(string)
		return "a text", ok
	case "min_disk_size_gb":
		n, isNumber := v.(doc.Number)
		return "a number greater than 0", isNumber && n.Finite() && n.Float64() > 0
	case "takes_credentials":
		_, ok = v.(bool)
		return "true or false", ok
	}
	return "", false
}
