//go:build integration

package interop_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"agentenv/test/kit"
)

// documents returns the documents of a collection, ordered by the value of a field.
func (u *user) documents(coll, by string) []any {
	u.T.Helper()
	var out []any
	for _, text := range u.Select(fmt.Sprintf(`SELECT doc FROM "docs_%s" ORDER BY json_extract(doc, '$.%s')`, coll, by)) {
		out = append(out, kit.Parse(u.T, text))
	}
	return out
}

// differences walks two documents and returns what differs, one line for each path; list positions are written as [].
func differences(path string, ref, our any, out map[string]string) {
	show := func(v any) string { b, _ := json.Marshal(v); return string(b) }
	rm, isMap := ref.(map[string]any)
	om, alsoMap := our.(map[string]any)
	if isMap && alsoMap {
		keys := map[string]bool{}
		for k := range rm {
			keys[k] = true
		}
		for k := range om {
			keys[k] = true
		}
		for k := range keys {
			r, inRef := rm[k]
			o, inOurs := om[k]
			switch {
			case !inRef:
				out[path+"/"+k] = "only ours: " + show(o)
			case !inOurs:
				out[path+"/"+k] = "only the reference: " + show(r)
			default:
				differences(path+"/"+k, r, o, out)
			}
		}
		return
	}
	rl, isList := ref.([]any)
	ol, alsoList := our.([]any)
	if isList && alsoList && len(rl) == len(ol) {
		for i := range rl {
			differences(fmt.Sprintf("%s/%d", path, i), rl[i], ol[i], out)
		}
		return
	}
	if show(ref) != show(our) {
		out[path] = "reference " + show(ref) + ", ours " + show(our)
	}
}

// random is what no two runs have in common: ids, times, the folder of the state.
var random = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`/t-[a-z0-9]{8}`), "/t-INSTANCE"},
	{regexp.MustCompile(`file://[^"]*/object_store/`), "STORE/"},
	{regexp.MustCompile(`-t-[a-z0-9]{8}(-[cs])?-[0-9a-f]{12}/\d+(-[0-9a-f]{8})?/`), "-t-INSTANCE/"},
	{regexp.MustCompile(`(local|docker)-[0-9a-f]{8}`), "$1-ID"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "HEX"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00| UTC)`), "TIME"},
	{regexp.MustCompile(`"duration_seconds":[0-9.e-]+`), `"duration_seconds":0`},
}

func normal(t testing.TB, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	s := string(b)
	for _, r := range random {
		s = r.what.ReplaceAllString(s, r.with)
	}
	return kit.Parse(t, s)
}

// compare fails for every difference whose path matches none of the allowed patterns, and for every allowance that is not needed.
func compare(t *testing.T, what string, ref, our any, allowed ...string) {
	t.Helper()
	found := map[string]string{}
	differences("", normal(t, ref), normal(t, our), found)
	used := make([]bool, len(allowed))
	var paths []string
	for p := range found {
		i := slices.IndexFunc(allowed, func(a string) bool { return regexp.MustCompile(`^` + a + `$`).MatchString(p) })
		if i >= 0 {
			used[i] = true
			continue
		}
		paths = append(paths, p)
	}
	sort.Strings(paths)
	for _, p := range paths {
		t.Errorf("%s%s: %s", what, p, found[p])
	}
	for i, a := range allowed {
		if !used[i] {
			t.Errorf("%s: the allowance %q is not needed", what, a)
		}
	}
}

// errorTypes returns the class name of each failed step.
func errorTypes(record any) string {
	var out []string
	list, _ := kit.At(record, "context", "metadata", "failed_steps").([]any)
	for _, f := range list {
		out = append(out, fmt.Sprintf("%v: %v fatal=%v", kit.At(f, "step_id"), kit.At(f, "error_type"), kit.At(f, "fatal")))
	}
	return strings.Join(out, "\n")
}
