//go:build integration

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv/test/kit"
)

// hostileScript fills a folder with whatever a filesystem can hold.
const hostileScript = `import os, socket, sys

def run(input):
    root = os.fsencode(input["args"]["folder"])
    def put(name, body=b"x"):
        p = os.path.join(root, name)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        with open(p, "wb") as f:
            f.write(body)
    put(b"plain.txt", b"plain")
    put(b"empty", b"")
    put(b"all.bin", bytes(range(256)))
    put(b"a space.txt", b"space")
    put(b"new\nline.txt", b"newline")
    put(b"-rf", b"dash")
    put(b"--version", b"dashes")
    put("é☃.txt".encode(), b"utf8")
    put(b"n" * 255, b"long")
    put(b"bad\xff\xfename.txt", b"not utf8")
    put(b"sub/deep/two.txt", b"two")
    put(b"sub/one.txt", b"one")
    put(b"sub/three.bin", b"three")
    put(b"glob[1]*.txt", b"brackets")
    put(b"back\\slash", b"backslash")
    os.symlink("plain.txt", os.path.join(root, b"link-file"))
    os.symlink("sub", os.path.join(root, b"link-folder"))
    os.symlink("nowhere", os.path.join(root, b"link-dangling"))
    os.symlink("link-loop", os.path.join(root, b"link-loop"))
    os.symlink("/etc/passwd", os.path.join(root, b"link-outside"))
    os.symlink("../../../../../../etc/hostname", os.path.join(root, b"link-climbs"))
    os.mkfifo(os.path.join(root, b"fifo"))
    s = socket.socket(socket.AF_UNIX)
    s.bind(os.path.join(root, b"sock"))
    return len(os.listdir(root))

if __name__ == "__main__":
    run({"args": {"folder": sys.argv[1]}})
`

func hostile() kit.Files {
	return kit.Files{
		"plain.txt": "plain", "empty": "", "all.bin": odd()["bytes.bin"], "a space.txt": "space", "new\nline.txt": "newline", "-rf": "dash",
		"--version": "dashes", "é☃.txt": "utf8", strings.Repeat("n", 255): "long", "sub/deep/two.txt": "two", "sub/one.txt": "one",
		"sub/three.bin": "three", "glob[1]*.txt": "brackets", "back\\slash": "backslash",
	}
}

// targets are the three places that steps work in.
var targets = []string{"vm", "local", "docker"}

// on returns the deploy step of a target.
func on(t testing.TB, target string) map[string]any {
	b := host("box")
	if target != "vm" {
		b = box(debian(t))
		b["sandbox_type"] = target
	}
	return b
}

// making returns the steps that call the artifact "make" with a folder: as a script in a container, by a shell on a bare machine,
// where only what a command says is taken for a path of the sandbox.
func making(target, folder string) steps {
	if target != "vm" {
		return steps{code("make", "box", "make", map[string]any{"folder": folder})}
	}
	return steps{load("script", "box", "make", "/app/script"), verify("make", "box", "/app", sh("python3 script/make.py "+folder))}
}

func TestCollecting(t *testing.T) {
	debian(t)
	for _, target := range targets {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			const folder = "/app/out"
			listed := collect("listed", "box", folder, "plain.txt", "sub", "*.bin", "**/t*.txt", "glob[1]*.txt", "link-file", "not-there", "{a space,nothing}.txt")
			dots := collect("dots", "box", folder, "../plain.txt")
			dots["fail_task_on_error"] = false
			dir := k.bundle("hostile", steps{on(t, target)}.with(making(target, folder)...).with(
				collect("all", "box", folder), listed, dots), kit.Files{"artifacts/make/make.py": hostileScript})
			before := prints(t, k.Home)
			s, r := k.summed(dir)
			if r.Code != 1 {
				t.Fatal(r)
			}
			record := k.instance(s.Tasks[0].Instance)
			got := record.at("context", "metadata", "collected_artifacts")
			all := k.collected(got.str("all", "file_artifact_universe", "id"))
			odd := 0
			for name, text := range all {
				if _, known := hostile()[name]; !known && text == "not utf8" && strings.HasPrefix(name, "bad") {
					delete(all, name)
					odd++
				}
			}
			if odd != 1 {
				t.Errorf("the file whose name is not UTF-8 was collected %d times: %q", odd, got.at("all", "artifacts").keys())
			}
			same(t, all, hostile())
			same(t, k.collected(got.str("listed", "file_artifact_universe", "id")), kit.Files{
				"plain.txt": "plain", "sub/deep/two.txt": "two", "sub/one.txt": "one", "sub/three.bin": "three", "all.bin": hostile()["all.bin"],
				"glob[1]*.txt": "brackets", "link-file": "plain", "a space.txt": "space",
			})
			reasons := map[string]string{}
			for i := range got.at("all", "left_out").len() {
				l := got.at("all", "left_out", i)
				reasons[strings.TrimPrefix(l.str("path"), folder+"/")] = l.str("reason")
			}
			for name, want := range map[string]string{"link-file": "plain.txt", "link-folder": "sub", "link-dangling": "nowhere", "link-loop": "link-loop",
				"link-outside": "/etc/passwd", "link-climbs": "etc/hostname", "fifo": "special", "sock": "special"} {
				if !strings.Contains(reasons[name], want) {
					t.Errorf("%s was left out with the reason %q, which does not say %q", name, reasons[name], want)
				}
			}
			if got.num("all", "left_out_count") != 8 || len(reasons) != 8 {
				t.Errorf("left out: %v %s", got.at("all", "left_out_count"), got.at("all", "left_out"))
			}
			failed := record.at("context", "metadata", "failed_steps")
			if failed.len() != 1 || failed.str(0, "step_id") != "dots" || !strings.Contains(failed.str(0, "error"), `".."`) {
				t.Errorf("failed steps: %s", failed)
			}
			logs, _ := filepath.Glob(filepath.Join(k.State, "logs", "*.log"))
			if len(logs) != 1 {
				t.Fatalf("log files: %v", logs)
			}
			text, err := os.ReadFile(logs[0])
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "link-outside") || !strings.Contains(r.Stderr, logs[0]) {
				t.Errorf("the log does not name what was left out, or the program not the log\n%s\n%s", text, r.Stderr)
			}
			if after := prints(t, k.Home); after != before {
				t.Errorf("the home changed:\n%s\n---\n%s", before, after)
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestCollectingNothing has lists of which nothing is there: the step fails and the record shows what there is.
func TestCollectingNothing(t *testing.T) {
	t.Parallel()
	k := newUser(t)
	dir := k.bundle("none", steps{host("box"), load("load", "box", "one", "/app/out"), collect("out", "box", "/app/out", "absent.txt", "no*")},
		kit.Files{"artifacts/one/there.txt": "x"})
	s, r := k.summed(dir)
	record := k.instance(s.Tasks[0].Instance)
	if r.Code != 1 || s.Tasks[0].Failures[0].Class != "RuntimeError" || !strings.Contains(s.Tasks[0].Failures[0].Error, "/app/out/absent.txt") {
		t.Error(r)
	}
	if f := record.at("context", "metadata", "collect_produced_files"); f.str("files", 0) != "there.txt" || f.str("base_path") != "/app/out" {
		t.Errorf("collect_produced_files: %s", f)
	}
}

// TestCollectingManyFiles collects 10,000 files.
func TestCollectingManyFiles(t *testing.T) {
	debian(t)
	const script = `import os
def run(input):
    for i in range(10000):
        d = "/app/many/%02d" % (i % 100)
        os.makedirs(d, exist_ok=True)
        with open("%s/%d" % (d, i), "w") as f:
            f.write(str(i))
`
	for _, target := range []string{"local", "docker"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			record := k.ends(k.bundle("many", steps{on(t, target), code("make", "box", "make", nil), collect("out", "box", "/app/many")}, kit.Files{"artifacts/make/make.py": script}))
			got := record.at("context", "metadata", "collected_artifacts", "out")
			if n := len(got.at("artifacts").keys()); n != 10000 || got.at("left_out_count").v != nil {
				t.Errorf("%d files collected, left out: %s", n, got.at("left_out"))
			}
			all := k.collected(got.str("file_artifact_universe", "id"))
			for i := range 10000 {
				if name := fmt.Sprintf("%02d/%d", i%100, i); all[name] != fmt.Sprint(i) {
					t.Fatalf("%s holds %q", name, all[name])
				}
			}
		})
	}
}

// ends runs a bundle of one task, which must end without a failure and without a score below 1.
func (k *user) ends(args ...string) doc {
	k.T.Helper()
	s, r := k.summed(args...)
	if o := s.Tasks[0].Outcome; r.Code != 0 || o != "unscored" && o != "passed" {
		k.T.Fatal(r)
	}
	return k.instance(s.Tasks[0].Instance)
}

// TestCollectingWhatGrows collects a file that something writes to: it is named and fails the step, the others are kept.
func TestCollectingWhatGrows(t *testing.T) {
	debian(t)
	for _, target := range targets {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			base := "/tmp/grow"
			if target == "vm" {
				base = "/app/grow"
			}
			out := collect("out", "box", base)
			out["fail_task_on_error"] = false
			dir := k.bundle("grow", steps{on(t, target),
				verify("write", "box", "/tmp", sh("mkdir "+base+" && echo still >"+base+"/still; dd if=/dev/zero of="+base+"/grow bs=1M count=200; (while :; do echo x; done >>"+base+"/grow) & sleep 0.3")), out}, nil)
			s, r := k.summed(dir)
			record := k.instance(s.Tasks[0].Instance)
			got := record.at("context", "metadata", "collected_artifacts", "out")
			failed := record.at("context", "metadata", "failed_steps", 0)
			if r.Code != 1 || failed.str("error_type") != "RuntimeError" || !strings.Contains(failed.str("error"), base+"/grow") {
				t.Errorf("%s\n%s", failed, r)
			}
			if got.str("left_out", 0, "path") != base+"/grow" || got.str("left_out", 0, "reason") == "" || got.at("left_out").len() != 1 {
				t.Errorf("left out: %s", got.at("left_out"))
			}
			if !slices.Contains(got.at("artifacts").keys(), "still") {
				t.Errorf("collected: %s", got.at("artifacts"))
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestLoading loads twice into one folder at once, over what is there, and over a link that leads elsewhere.
func TestLoading(t *testing.T) {
	debian(t)
	for _, target := range targets {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			const folder = "/app/base"
			prepare := `import os, sys
def run(input):
    base = input["args"]["folder"]
    os.makedirs(base + "/in")
    with open(base + "/in/old.txt", "w") as f: f.write("something much longer than what comes")
    with open(base + "/victim", "w") as f: f.write("untouched")
    os.symlink("../victim", base + "/in/link.txt")
if __name__ == "__main__":
    run({"args": {"folder": sys.argv[1]}})
`
			first, second := load("first", "box", "one", folder+"/in"), load("second", "box", "two", folder+"/in")
			first["depends_on"], second["depends_on"] = []string{"make"}, []string{"make"}
			out := collect("out", "box", folder)
			out["depends_on"] = []string{"first", "second"}
			one := kit.Files{"old.txt": "new", "link.txt": "no link"}
			two := kit.Files{".gitignore": "*\n", ".dockerignore": "**\n", ".ignore": "*\n"}
			for i := range 200 {
				one[fmt.Sprintf("one/%d.txt", i)] = fmt.Sprint("one ", i)
				two[fmt.Sprintf("two/%d.txt", i)] = fmt.Sprint("two ", i)
			}
			dir := k.bundle("loads", steps{on(t, target)}.with(making(target, folder)...).with(first, second, out),
				kit.Files{"artifacts/make/make.py": prepare}.And(one.Under("artifacts/one")).And(two.Under("artifacts/two")))
			record := k.ends(dir)
			same(t, k.collected(record.str("context", "metadata", "collected_artifacts", "out", "file_artifact_universe", "id")),
				one.And(two).Under("in").And(kit.Files{"victim": "untouched"}))
		})
	}
}
