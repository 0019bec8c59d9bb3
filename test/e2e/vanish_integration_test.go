//go:build integration

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/moby/client"
)

// vanish takes away what the user's run works in, as a machine that dies does: containers, folders, and what runs in them.
func (k *user) vanish(run *process) {
	k.T.Helper()
	for _, c := range k.containers() {
		if _, err := docker(k.T).Client().ContainerRemove(context.Background(), strings.Fields(c)[0], client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			k.T.Fatal(err)
		}
	}
	folders, err := filepath.Glob(filepath.Join(k.Sandboxes, "*"))
	if err != nil {
		k.T.Fatal(err)
	}
	for _, f := range folders {
		if err := os.RemoveAll(f); err != nil {
			k.T.Fatal(err)
		}
	}
	for _, line := range k.processes() {
		var pid int
		if _, err := fmt.Sscanf(line, "process %d", &pid); err == nil && pid != run.cmd.Process.Pid {
			_ = syscall.Kill(pid, syscall.SIGKILL) // one that ended meanwhile is as good
		}
	}
}

// TestSandboxVanishes takes the sandbox away while a step works in it: that says nothing about the work, so no score comes of it.
func TestSandboxVanishes(t *testing.T) {
	debian(t)
	for _, target := range targets {
		for _, moment := range []string{"run_code", "verify"} {
			t.Run(target+" "+moment, func(t *testing.T) {
				t.Parallel()
				k := newUser(t)
				p := begun(t, k, target, moment)
				k.vanish(p)
				if code := p.wait(); code != 1 {
					t.Errorf("exit code %d\n%s", code, p.text())
				}
				record := k.instance(k.only(p.text()))
				failed := record.at("context", "metadata", "failed_steps")
				if record.str("outcome_class") != "infrastructure" || record.str("status") != "failed" || failed.len() != 1 || failed.str(0, "step_id") != "late" {
					t.Errorf("class %q, status %q, failed steps %s\n%s", record.str("outcome_class"), record.str("status"), failed, p.text())
				}
				// What the step meets first depends on how far the removal has come.
				why := failed.str(0, "error")
				said := slices.ContainsFunc([]string{"went away", "the connection broke", "is not running"}, func(w string) bool { return strings.Contains(why, w) })
				if !said || strings.Contains(why, "\n") {
					t.Errorf("the step's error: %s", why)
				}
				if score := record.at("context", "metadata", "verifications", "late"); score.v != nil {
					t.Errorf("a score came of it: %s", score)
				}
				if left := k.leftovers(); left != "" {
					t.Errorf("left behind: %s", left)
				}
				if ids := k.listed(); len(ids) != 0 {
					t.Errorf("still listed: %v", ids)
				}
			})
		}
	}
}
