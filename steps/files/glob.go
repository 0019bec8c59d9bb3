package files

import (
	"context"
	"fmt"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"agentenv/fault"
	"agentenv/sandbox/place"
)

// glob returns an item for each file or link that the item's source, read as a pattern, matches in the place. Keys and object
// names take the matched text, so they are what the author would have written for that file.
func glob(ctx context.Context, p place.Place, it item) ([]item, error) {
	root, pattern := doublestar.SplitPattern(it.source)
	if !doublestar.ValidatePattern(pattern) {
		return nil, fault.New(fault.Invalid, "the entry %q is no valid pattern", it.key)
	}
	prefix := strings.TrimRight(root, "/") + "/"
	// The part of the key before the pattern's folder is the same text for every match.
	cut := func(text string) string { return strings.TrimSuffix(text, strings.TrimPrefix(it.source, prefix)) }
	keyRoot, objectRoot := cut(it.key), cut(it.object)
	var out []item
	for e, err := range p.Walk(ctx, root, false) {
		if fault.Is(err, fault.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if e.Kind == place.Dir {
			continue
		}
		if ok, _ := doublestar.Match(pattern, e.Name); !ok {
			continue
		}
		m := item{source: prefix + e.Name}
		_, m.object = item{object: objectRoot}.below(e.Name)
		m.key, _ = item{key: keyRoot}.below(e.Name)
		out = append(out, m)
	}
	return out, nil
}

func sizeChanged(was, now int64) string {
	return fmt.Sprintf("it changed while it was read: %d bytes were read, %d are there now", was, now)
}

func leftOutNote(g *gathered) string {
	if g.leftCount == 1 {
		return "1 path was left out; the log and the run's record give the reason"
	}
	return fmt.Sprintf("%d paths were left out; the log and the run's record give the reasons", g.leftCount)
}

// quoted writes names as readers of records know such lists: ['a', 'b'], at most twenty of them.
func quoted(names []string) string {
	const most = 20
	out := make([]string, 0, most)
	for _, n := range names[:min(len(names), most)] {
		out = append(out, "'"+strings.ReplaceAll(place.Text([]byte(n)), "'", `\'`)+"'")
	}
	if len(names) > most {
		out = append(out, fmt.Sprintf("… %d more", len(names)-most))
	}
	return "[" + strings.Join(out, ", ") + "]"
}
