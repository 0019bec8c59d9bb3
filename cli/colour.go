package cli

import (
	"io"
	"regexp"
)

// Outcome colours: green for passed, red for failed, yellow for what lies between.
var colours = map[string]string{"passed": "32", "failed": "31", "scored below 1": "33", "unscored": "33", "cancelled": "33",
	"COMPLETED": "32", "PASSED": "32", "FAILED": "31", "CANCELED": "33"}

// outcomeAt finds the outcome in a line about a run: "[tasks/a.json] passed in 1.0s", "  tasks/a.json v1: failed at …", "[run 1] Run FAILED: …",
// "  [t] PASSED score=1".
var outcomeAt = regexp.MustCompile(`(?m)^(\[[^\n]*\] |  [^\n]*? v\d+: |(?:\[[^\n]*\] )?Run |  \[[^\n]*\] )(passed|failed|scored below 1|unscored|cancelled|COMPLETED|PASSED|FAILED|CANCELED)( in |,| |:|\n|$)`)

// painter colours the outcomes in lines about runs. Every Write holds whole lines.
type painter struct{ out io.Writer }

// Write implements io.Writer; the count is that of the uncoloured text.
func (p painter) Write(b []byte) (int, error) {
	painted := outcomeAt.ReplaceAllFunc(b, func(m []byte) []byte {
		part := outcomeAt.FindSubmatch(m)
		out := append([]byte(nil), part[1]...)
		out = append(out, "\x1b["+colours[string(part[2])]+"m"...)
		out = append(out, part[2]...)
		out = append(out, "\x1b[0m"...)
		return append(out, part[3]...)
	})
	if _, err := p.out.Write(painted); err != nil {
		return 0, err
	}
	return len(b), nil
}

// coloured returns out with outcomes coloured on a terminal, unless NO_COLOR is set.
func (a *App) coloured(out io.Writer) io.Writer {
	if !a.StdoutTerminal || a.Env("NO_COLOR") != "" {
		return out
	}
	return painter{out}
}
