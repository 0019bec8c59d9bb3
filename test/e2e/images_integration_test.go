//go:build integration

package e2e_test

import (
	"strings"
	"testing"
)

// TestImages does the whole job on a full image, on one with BusyBox alone, and on one that holds a single program and no shell.
func TestImages(t *testing.T) {
	for _, c := range []struct {
		name, image string
		shell       float64
		why         string // in the row of the shell probe
		codeFails   string // "" = run_code works
	}{
		{name: "debian", image: debian(t), shell: 1, why: "exit=0"},
		{name: "busybox", image: busybox(t), shell: 1, why: "(run by sh: there is no bash)", codeFails: "there is no python3 in "},
		{name: "scratch", image: scratch(t), shell: 0, why: "shell", codeFails: "there is no python3 in "},
	} {
		for _, provider := range providers {
			t.Run(c.name+" "+provider, func(t *testing.T) {
				t.Parallel()
				k := newUser(t)
				const folder = "/secret/in"
				last := code("code", "box", "inspect", map[string]any{"folder": folder})
				last["fail_task_on_error"] = false
				dir := k.bundle("images", steps{
					box(c.image), load("load", "box", "odd", folder),
					verify("paths", "box", folder, is("a.txt", "-dash", "ünïcode/☃ naïve.txt"), dirIs("deep/er", "with space"), contains("a.txt", "hello"), contains("bytes.bin", "ABC")),
					verify("lacks", "box", folder, is("nothing"), dirIs("a.txt"), contains("a.txt", "goodbye")),
					verify("shell", "box", folder, sh("exit 0")),
					collect("out", "box", folder), last,
				}, secretFiles())
				s, r := k.summed(dir, "--sandbox", provider)
				record := k.instance(s.Tasks[0].Instance)
				rows := record.at("context", "metadata", "verifications")
				for id, want := range map[string]float64{"paths": 1, "lacks": 0, "shell": c.shell} {
					if rows.at(id, "score").v != want {
						t.Errorf("%s: %s", id, rows.at(id))
					}
				}
				for i, row := range []string{"nothing", "a.txt", "goodbye"} {
					if v := rows.at("lacks", "results", i); v.at("score").v != 0.0 || !strings.Contains(v.str("justification"), row) {
						t.Errorf("row %d: %s", i, v)
					}
				}
				if why := rows.str("shell", "results", 0, "justification"); !strings.Contains(why, c.why) || strings.Contains(why, "\n\n") {
					t.Errorf("the shell row says %q, not %q", why, c.why)
				}
				same(t, k.collected(record.str("context", "metadata", "collected_artifacts", "out", "file_artifact_universe", "id")), odd())
				failed := record.at("context", "metadata", "failed_steps")
				switch {
				case c.codeFails == "" && (failed.len() != 0 || r.Code != 0):
					t.Errorf("%s\n%s", failed, r)
				case c.codeFails != "":
					text := failed.str(0, "error")
					if failed.len() != 1 || failed.str(0, "step_id") != "code" || !strings.Contains(text, c.codeFails) || strings.Contains(text, "\n") || r.Code != 1 {
						t.Errorf("%s\n%s", failed, r)
					}
				}
				if left := k.leftovers(); left != "" {
					t.Errorf("left behind: %s", left)
				}
			})
		}
	}
}
