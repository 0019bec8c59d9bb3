//go:build integration

package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os/exec"
	"strings"
	"testing"

	"agentenv/test/kit"
)

// providers are the two shapes of container mode: a container beside a host, and a sandbox that is the container.
var providers = []string{"local", "docker"}

// secretTask works in a folder that only root of the image can enter.
func secretTask(image, folder string) steps {
	return steps{
		box(image),
		load("load", "box", "odd", folder),
		verify("staged", "box", folder,
			is("a.txt", "deep/er/still/b.json", "-dash", "$(touch x)`y`;z"), dirIs("deep/er", "."), contains("a.txt", "^hello$"),
			sh(`test "$(id -u)" = 65534`), sh("! ls /secret"), sh("test -z \"$(cat)\"")),
		code("inspect", "box", "inspect", map[string]any{"folder": folder}),
		collect("out", "box", folder),
		verify("after", "box", folder, is("made inside.bin")),
		{"id": "score", "type": "aggregate_verifiers", "verifier_ids": []string{"staged", "after"}, "verifier_id": "score", "score_aggregator": "all_pass"},
	}
}

func secretFiles() kit.Files {
	return odd().Under("artifacts/odd").And(kit.Files{"artifacts/inspect/inspect.py": inspectScript})
}

// checkSecret checks the record of a run of secretTask.
func checkSecret(t *testing.T, k *user, record doc, folder string) {
	t.Helper()
	if !absent("/secret") {
		t.Error("/secret is on this machine")
	}
	if got := record.num("context", "metadata", "verifications", "score", "score"); got != 1 {
		t.Errorf("the score is %v: %s", got, record.at("context", "metadata", "verifications"))
	}
	inside := record.at("context", "metadata", "script_results", "inspect")
	if inside.num("uid") != 0 || inside.at("uid").v == nil {
		t.Errorf("run_code ran as uid %v", inside.at("uid"))
	}
	checkOwned(t, inside.at("files"), odd())
	want := odd().And(kit.Files{"made inside.bin": odd()["bytes.bin"]})
	same(t, k.collected(record.str("context", "metadata", "file_artifact_universe", "id")), want)
}

// checkOwned checks what inspectScript saw: every file there with its bytes, everything root's with sane modes.
func checkOwned(t *testing.T, seen doc, want kit.Files) {
	t.Helper()
	for name, text := range want {
		sum := sha256.Sum256([]byte(strings.TrimPrefix(text, "+x")))
		f := seen.at(name)
		if f.at(3).v != hex.EncodeToString(sum[:]) || f.at(2).v != "0o644" || f.at(0).v != 0.0 || f.at(1).v != 0.0 {
			t.Errorf("%q: [uid gid mode sha256] is %s, want 0 0 0o644 %x", name, f, sum)
		}
	}
	for _, name := range seen.keys() {
		if _, file := want[name]; file {
			continue
		}
		if f := seen.at(name); f.at(2).v != "0o755" || f.at(0).v != 0.0 || f.at(1).v != 0.0 || f.at(3).v != "" {
			t.Errorf("%q, a folder: [uid gid mode] is %s, want 0 0 0o755", name, f)
		}
	}
}

func TestFilesInAndOutOfAContainer(t *testing.T) {
	image := debian(t)
	for _, provider := range providers {
		for _, umask := range []string{"077", "000"} {
			t.Run(provider+" umask "+umask, func(t *testing.T) {
				t.Parallel()
				k := newUser(t)
				const folder = "/secret/in"
				dir := k.bundle("files", secretTask(image, folder), secretFiles())
				cmd := exec.CommandContext(t.Context(), "sh", "-c", "umask "+umask+`; exec "$0" "$@"`, program, "run", "--json", "--sandbox", provider, dir)
				cmd.Dir, cmd.Env = k.Home, k.Environ()
				r := kit.Finish(t, cmd)
				if r.Code != 0 {
					t.Fatal(r)
				}
				s := parse(t, r.Stdout)
				checkSecret(t, k, k.instance(s.str("tasks", 0, "instance")), folder)
				if s.at("still_up").len() != 0 || s.at("torn_down").len() != 1 {
					t.Errorf("torn down: %s, still up: %s", s.at("torn_down"), s.at("still_up"))
				}
				if left := k.leftovers(); left != "" {
					t.Errorf("left behind: %s", left)
				}
			})
		}
	}
}

// TestShippedContainerBundle runs the bundle that ships, whose image is built from the bundle.
func TestShippedContainerBundle(t *testing.T) {
	pythonSlim(t)
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			record := k.passes("container-files", "--sandbox", provider)
			if n := record.at("context", "metadata", "collected_artifacts", "collect", "artifacts").keys(); len(n) != 3 {
				t.Errorf("collected %v", n)
			}
			if !absent("/vault") {
				t.Error("/vault is on this machine")
			}
			for _, row := range []int{0, 1, 2} {
				if v := record.at("context", "metadata", "verifications", "staged", "results", row); v.at("result").v != true {
					t.Errorf("row %d: %s", row, v)
				}
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestHelloNeedsNothing runs the bundle that needs no engine, with an engine that is not there.
func TestHelloNeedsNothing(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	k.Env = []string{"DOCKER_HOST=unix://" + k.Dir + "/none.sock"}
	k.passes("hello")
	if left := k.leftovers(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestHostBesideContainer has a bare machine and a container in one task: each step acts on its own side.
func TestHostBesideContainer(t *testing.T) {
	image := debian(t)
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			b := box(image)
			b["sandbox_type"] = provider
			task := steps{
				b, host("host"),
				load("in-box", "box", "left", "/app/data"),
				load("in-host", "host", "right", "/app/data"),
				verify("box-files", "box", "/app/data", is("left.txt"), contains("left.txt", "L"), sh("test -e left.txt && ! test -e right.txt"), sh("test $(id -u) = 65534")),
				verify("box-lacks", "box", "/app/data", is("right.txt")),
				verify("host-files", "host", "/app/data", is("right.txt"), contains("right.txt", "R"), sh("test -e right.txt && ! test -e left.txt"), sh("test $(id -u) = 0")),
				verify("host-lacks", "host", "/app/data", is("left.txt")),
				code("box-code", "box", "inspect", map[string]any{"folder": "/app/data"}),
				collect("box-out", "box", "/app/data"),
				collect("host-out", "host", "/app/data"),
			}
			dir := k.bundle("both", task, kit.Files{"artifacts/left/left.txt": "L", "artifacts/right/right.txt": "R", "artifacts/inspect/i.py": inspectScript})
			s, r := k.summed(dir)
			if r.Code != 0 {
				t.Fatal(r)
			}
			record := k.instance(s.Tasks[0].Instance)
			for id, want := range map[string]float64{"box-files": 1, "box-lacks": 0, "host-files": 1, "host-lacks": 0} {
				if v := record.at("context", "metadata", "verifications", id); v.at("score").v != want {
					t.Errorf("%s: %s", id, v)
				}
			}
			got := record.at("context", "metadata", "collected_artifacts")
			same(t, k.collected(got.str("box-out", "file_artifact_universe", "id")), kit.Files{"left.txt": "L", "made inside.bin": odd()["bytes.bin"]})
			same(t, k.collected(got.str("host-out", "file_artifact_universe", "id")), kit.Files{"right.txt": "R"})
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}
