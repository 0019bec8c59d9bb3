package cli_test

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"

	"agentenv/cli"
)

// broken is an output that takes nothing.
type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

func TestLostOutputIsAFailure(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		says string
	}{{syscall.ENOSPC, 1, "no space left"}, {syscall.EPIPE, 0, ""}} {
		var stderr bytes.Buffer
		app := &cli.App{Version: "test", Env: func(string) string { return "" }, Stdin: strings.NewReader(""), Stdout: broken{c.err}, Stderr: &stderr}
		if code := app.Run(context.Background(), []string{"--version"}); code != c.code || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%v: exit code %d, %q", c.err, code, stderr.String())
		}
	}
}
