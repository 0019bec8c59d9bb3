//go:build integration

package e2e_test

import (
	"os"
	"testing"

	"agentenv/test/kit"
)

// program is the binary under test.
var program string

func TestMain(m *testing.M) {
	if spec := os.Getenv(elsewhereEnv); spec != "" {
		os.Exit(elsewhere(spec))
	}
	os.Exit(kit.Main(m, &program))
}
