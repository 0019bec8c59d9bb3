package task

import (
	"slices"

	"agentenv/store/doc"
)

// Shown returns a value of a run's record as it may be shown and exported: without what Redact leaves out, and without the addresses of agents'
// staging stores. Our records hold none, and those of other programs do: who knows one may read and write there. What holds neither is
// returned as it is.
func Shown(v any) any {
	out, _ := withoutStaging(Redact(v))
	return out
}

// withoutStaging leaves the addresses out, and reports whether there were any.
func withoutStaging(v any) (any, bool) {
	switch v := v.(type) {
	case *doc.Object:
		out := v
		for _, k := range v.Keys() {
			clean, changed := withoutStaging(v.Value(k))
			if !changed && k != "staging_url" {
				continue
			}
			if out == v {
				out = v.Clone()
			}
			if k == "staging_url" {
				out.Delete(k)
			} else {
				out.Set(k, clean)
			}
		}
		return out, out != v
	case []any:
		out, found := v, false
		for i, item := range v {
			clean, changed := withoutStaging(item)
			if !changed {
				continue
			}
			if !found {
				out, found = slices.Clone(v), true
			}
			out[i] = clean
		}
		return out, found
	}
	return v, false
}
