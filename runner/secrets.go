package runner

import (
	"agentenv/store/doc"
	"agentenv/task"
)

// RawSecrets returns the paths of the values in a request that may not be stored: keys that are secrets themselves and no reference
// (`secret:NAME`, `env:NAME`) to one. Such a request can be run by the process that took it only.
func RawSecrets(req Request) []string {
	var paths []string
	hidden("metadata", req.Metadata, &paths)
	hidden("context", req.Context, &paths)
	return paths
}

func hidden(at string, o *doc.Object, paths *[]string) {
	if o == nil {
		return
	}
	clean, _ := task.Redact(o).(*doc.Object)
	for _, k := range o.Keys() {
		v := o.Value(k)
		path := at + "." + k
		if _, kept := clean.Get(k); !kept {
			*paths = append(*paths, path)
			continue
		}
		switch v := v.(type) {
		case *doc.Object:
			hidden(path, v, paths)
		case []any:
			for _, el := range v {
				if sub, ok := el.(*doc.Object); ok {
					hidden(path, sub, paths)
				}
			}
		}
	}
}
