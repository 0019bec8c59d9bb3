package task

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"agentenv/store/doc"
)

var recordKeys = map[string]string{"deployed_envs": "instance_id", "deployed_agents": "agent_name", "deployed_sandboxes": "sandbox_name"}

// recordID is how an element of a list is known in edits: by the key of its kind of record, else by its content.
func recordID(list string, v any) string {
	if key := recordKeys[list]; key != "" {
		if o, ok := v.(*doc.Object); ok && o.Str(key) != "" {
			return o.Str(key)
		}
	}
	sum := sha256.Sum256([]byte(doc.Canonical(v)))
	return hex.EncodeToString(sum[:])
}

// listName returns the name by which recordID knows the list at a path below the context.
func listName(path []string) string {
	if len(path) == 1 {
		return path[0]
	}
	return ""
}

// unionKey says which elements are one in a union: envs are known by their deployment, everything else by its content.
func unionKey(list string, v any) string {
	if list == "deployed_envs" {
		if o, ok := v.(*doc.Object); ok && o.Str("instance_id") != "" {
			return "\x00" + o.Str("instance_id")
		}
	}
	return doc.Canonical(v)
}

// fewItems is up to how many new items comparing with each element is cheaper than hashing them all.
const fewItems = 4

// missing returns the items that are not in list, the first of equal ones only.
func missing(name string, list, items []any) []any {
	if len(items) <= fewItems && name != "deployed_envs" {
		var out []any
		for _, v := range items {
			same := func(x any) bool { return doc.Equal(x, v) }
			if !slices.ContainsFunc(list, same) && !slices.ContainsFunc(out, same) {
				out = append(out, v)
			}
		}
		return out
	}
	seen := make(map[string]bool, len(list)+len(items))
	for _, v := range list {
		seen[unionKey(name, v)] = true
	}
	var out []any
	for _, v := range items {
		if k := unionKey(name, v); !seen[k] {
			seen[k] = true
			out = append(out, v)
		}
	}
	return out
}

// union appends to list the items it lacks.
func union(name string, list, items []any) []any {
	return append(slices.Clip(list), missing(name, list, items)...)
}
