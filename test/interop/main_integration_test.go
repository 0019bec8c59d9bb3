//go:build integration

package interop_test

import (
	"fmt"
	"os"
	"testing"

	"agentenv/test/kit"
)

// The two programs under test.
var ours, reference string

func TestMain(m *testing.M) {
	if reference = os.Getenv("AGENT_ENV_REFERENCE"); reference == "" {
		fmt.Fprintln(os.Stderr, "AGENT_ENV_REFERENCE must name the reference's program; make test installs it")
		os.Exit(1)
	}
	os.Exit(kit.Main(m, &ours))
}

// user may use either program, on the same state folder.
type user struct{ *kit.User }

func newUser(t testing.TB) *user {
	t.Helper()
	u := &user{kit.NewUser(t)}
	u.Env = []string{"NO_COLOR=1"}
	return u
}

func name(program string) string {
	if program == ours {
		return "ours"
	}
	return "the reference"
}
