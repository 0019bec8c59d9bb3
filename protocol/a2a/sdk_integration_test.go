//go:build integration

package a2a_test

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
)

// sdk is the version of the Python client that must understand the kit.
const sdk = "a2a-sdk==0.3.26"

// python returns the interpreter of an environment that has the client, which is made the first time.
func python(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(home, ".cache", "agent-env-test", "a2a-sdk")
	program := filepath.Join(dir, "bin", "python")
	ctx, done := context.WithTimeout(t.Context(), 5*time.Minute)
	defer done()
	for _, command := range [][]string{{"python3", "-m", "venv", dir}, {program, "-m", "pip", "install", "--quiet", sdk}} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	return program
}

// TestThePythonClientTalksToTheKit sends messages by the client that A2A publishes, and reads what comes back by its own types.
func TestThePythonClientTalksToTheKit(t *testing.T) {
	t.Parallel()
	program := python(t)
	server, err := echo.New(t.Context(), a2a.Settings{StagingDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		h.Close()
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	ctx, done := context.WithTimeout(t.Context(), 2*time.Minute)
	defer done()
	out, err := exec.CommandContext(ctx, program, filepath.Join("testdata", "client.py"), h.URL).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Fatalf("%v\n%s", err, out)
	}
}
