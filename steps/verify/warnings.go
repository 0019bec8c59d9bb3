package verify

import (
	"fmt"
	"strings"

	"agentenv/pattern"
)

// warnings says which criteria can never pass, or are passed over.
func (a *verifySandbox) warnings() []string {
	var out []string
	warn := func(i int, format string, args ...any) {
		out = append(out, fmt.Sprintf("criterion %d ", i)+fmt.Sprintf(format, args...))
	}
	if len(a.criteria) == 0 {
		out = append(out, "there are no criteria, so the score is always 0")
	}
	if err := checkWeights(a.how, a.criteria); err != nil {
		out = append(out, err.Error()+"; the step will fail")
	}
	for i, c := range a.criteria {
		if why := mistyped(c); why != "" {
			warn(i, "(%s) fails: %s", c.Str("type"), why)
			continue
		}
		switch typ := c.Str("type"); typ {
		case "probe_file_exists", "probe_dir_exists", "probe_file_contains":
			if len(paths(c)) == 0 {
				warn(i, "(%s) has no paths, so it fails", typ)
			}
			if typ != "probe_file_contains" {
				continue
			}
			if _, err := pattern.Compile(patternOf(c)); err != nil {
				warn(i, "has an invalid pattern, so it fails: %s", pattern.Reason(err))
			}
		case "bash_cmd_succeeds":
			if strings.TrimSpace(c.Str("bash_cmd")) == "" {
				warn(i, "(%s) has no bash_cmd, so it fails", typ)
			}
		default:
			warn(i, "is of the type %s, which verify_sandbox does not know: the row is skipped", repr(c.Value("type")))
		}
	}
	return out
}
