//go:build integration

package localfs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/store/object/localfs"
)

// TestReferenceRacesForAKey lets both programs write one key: one of all writers wins, its bytes are there whole, and every
// other one is told that the key is taken.
func TestReferenceRacesForAKey(t *testing.T) {
	program := os.Getenv("AGENT_ENV_REFERENCE")
	if program == "" {
		t.Fatal("AGENT_ENV_REFERENCE must name the reference's program; make test installs it")
	}
	state, home := t.TempDir(), t.TempDir()
	root := filepath.Join(state, "agent-env", "object_store")
	const size = 1 << 20
	text := func(writer string) string { return strings.Repeat(writer, size) }
	var mu sync.Mutex
	var winners []string
	win := func(writer string) {
		mu.Lock()
		defer mu.Unlock()
		winners = append(winners, writer)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		writer := fmt.Sprint(i)
		folder := filepath.Join(home, "in"+writer)
		must(t, os.MkdirAll(folder, 0o755))
		must(t, os.WriteFile(filepath.Join(folder, "key.txt"), []byte(text(writer)), 0o644))
		cmd := exec.CommandContext(t.Context(), program, "artifact", "file-artifact-universe", "put-bundled", "--id", "demo"+writer,
			"--file-dir", folder, "--prefix-url", "file://"+root+"/race/")
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "HOME="+home)
		cmd.Dir = home
		wg.Go(func() {
			if out, err := cmd.CombinedOutput(); err == nil {
				win(writer)
			} else if !strings.Contains(string(out), "key.txt") {
				t.Errorf("the reference failed for another reason: %v\n%s", err, out)
			}
		})
	}
	for i := range 4 {
		writer := string(rune('a' + i))
		wg.Go(func() {
			s, err := localfs.New(root)
			if err != nil {
				t.Error(err)
				return
			}
			// The reference takes seconds to start; its first trace is the starting gun.
			for started := false; !started && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
				found, _ := filepath.Glob(root + "/.agentenv-tmp/staged-*")
				_, err := os.Stat(root + "/race/key.txt")
				started = len(found) > 0 || err == nil
			}
			switch _, err := s.PutAll(t.Context(), once(item("race/key.txt", text(writer), "text/plain"))); {
			case err == nil:
				win(writer)
			case !fault.Is(err, fault.Exists):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := os.ReadFile(root + "/race/key.txt")
	if err != nil || len(winners) != 1 || string(got) != text(winners[0]) {
		t.Fatalf("winners %q; the key holds %d bytes, %v", winners, len(got), err)
	}
	s, err := localfs.New(root)
	must(t, err)
	info, err := s.Stat(t.Context(), "file://"+root+"/race/key.txt")
	if err != nil || info == nil || info.ContentType != "text/plain" {
		t.Errorf("the record is not the winner's: %+v, %v", info, err)
	}
}
