package kit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Main builds the program under test into a folder that ends with the tests, sets program to its path, runs the tests and returns
// their exit code: 1 when the program does not build.
func Main(m *testing.M, program *string) int {
	dir, err := os.MkdirTemp("", "agentenv-tests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Another user runs it too, in the tests of missing rights.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*program = filepath.Join(dir, "agent-env")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", *program, "agentenv/cmd/agent-env")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
