package cli

import (
	"fmt"
	"strings"

	"agentenv/store/doc"
)

// longestValue is how much of a value is shown in a line about a step.
const longestValue = 600

// outputLines are the lines about what a step wrote: what it deployed, prompted and changed, then its verification: that of verifier, "" = all there
// are. A row may hold those of earlier steps again. Without detail they are the scores alone.
func outputLines(out *doc.Object, verifier string, detail bool) []string {
	var lines []string
	meta := out.Obj("metadata")
	if detail {
		for _, block := range []struct {
			heading string
			items   []any
		}{
			{"deployed-env", out.Arr("deployed_envs")}, {"deployed-agent", out.Arr("deployed_agents")},
			{"loaded-snapshot", meta.Arr("agent_loaded_snapshots")}, {"prompt-response", out.Arr("prompt_responses")},
			{"agent-snapshot", meta.Arr("agent_snapshots")}, {"tool-access-change", meta.Arr("tool_access_changes")},
		} {
			for _, item := range block.items {
				lines = append(append(lines, block.heading+":"), fieldLines(item)...)
			}
		}
		if changes := meta.Arr("server_config_changes"); len(changes) > 0 {
			lines = append(lines, fmt.Sprintf("server-config-applied (%d):", len(changes)))
			for _, c := range changes {
				lines = append(lines, fieldLines(c)...)
			}
		}
	}
	verifications := meta.Obj("verifications")
	for _, id := range verifications.Keys() {
		v := verifications.Obj(id)
		if verifier != "" && id != verifier {
			continue
		}
		if detail {
			lines = append(lines, fmt.Sprintf("verification (verifier_id=%s):", id))
			lines = append(lines, verificationLines(v)...)
		}
		if n, ok := v.Value("score").(doc.Number); ok {
			lines = append(lines, fmt.Sprintf("score (verifier_id=%s): %s", id, n))
		}
	}
	return lines
}

// verificationLines are the lines about a verification but for its score: its plain values, then its results as JSON.
func verificationLines(v *doc.Object) []string {
	var lines []string
	rest := v.Clone()
	rest.Delete("score")
	rest.Delete("results")
	for _, line := range fieldLines(rest) {
		lines = append(lines, strings.TrimPrefix(line, "    "))
	}
	results, there := v.Get("results")
	if !there || results == nil {
		return lines
	}
	text, err := doc.MarshalIndent(results)
	if err != nil {
		return append(lines, "verification-results: they cannot be shown: "+err.Error())
	}
	lines = append(lines, "verification-results: |")
	for line := range strings.Lines(string(text)) {
		lines = append(lines, "    "+strings.TrimSuffix(line, "\n"))
	}
	return lines
}

// fieldLines are the fields of a record that say something, one a line: a text as it is, its further lines below it, anything else as JSON.
func fieldLines(record any) []string {
	o, ok := record.(*doc.Object)
	if !ok {
		return []string{"    " + brief(doc.Canonical(record), longestValue)}
	}
	var lines []string
	for _, k := range o.Keys() {
		switch v := o.Value(k).(type) {
		case nil:
		case string:
			text := strings.TrimRight(brief(v, longestValue), "\n")
			if !strings.Contains(text, "\n") {
				lines = append(lines, fmt.Sprintf("    %s: %s", k, text))
				continue
			}
			lines = append(lines, fmt.Sprintf("    %s: |", k))
			for line := range strings.Lines(text) {
				lines = append(lines, "        "+strings.TrimSuffix(line, "\n"))
			}
		case *doc.Object:
			if v.Len() > 0 {
				lines = append(lines, fmt.Sprintf("    %s: %s", k, brief(doc.Canonical(v), longestValue)))
			}
		case []any:
			if len(v) > 0 {
				lines = append(lines, fmt.Sprintf("    %s: %s", k, brief(doc.Canonical(v), longestValue)))
			}
		default:
			lines = append(lines, fmt.Sprintf("    %s: %s", k, doc.Canonical(v)))
		}
	}
	return lines
}
