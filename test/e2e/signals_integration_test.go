//go:build integration

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"agentenv/sandbox"
	"agentenv/test/kit"
)

// stop is one way to end a run from outside, and how the program then ends.
type stop struct {
	sig    syscall.Signal
	code   int
	reason string
}

var stops = []stop{
	{syscall.SIGINT, 130, "cancelled by Ctrl-C"},
	{syscall.SIGTERM, 143, "cancelled by SIGTERM"},
	{syscall.SIGHUP, 129, "cancelled by SIGHUP"},
}

// moments are the steps of a run at which it is stopped: each lasts until then.
var moments = []string{"deploy", "load", "verify", "run_code", "collect", "teardown"}

// slowServer serves a body that never ends.
func slowServer(t *testing.T) string {
	t.Helper()
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "the beginning")
		w.(http.Flusher).Flush()
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(end); s.Close() })
	return s.URL + "/slow.bin"
}

// stoppedAt returns a task on a target that works at one moment, and the line by which that moment is known to have come.
func stoppedAt(t *testing.T, target, moment string) (task steps, more kit.Files, line string) {
	t.Helper()
	b := host("box")
	if target != "vm" {
		image := withVolume(t)
		if moment == "run_code" {
			image = debian(t)
		}
		b = box(image)
		b["sandbox_type"] = target
	}
	// A loop in the background that takes its time to end is there when the program is stopped, whatever it does then.
	task = steps{b, load("first", "box", "one", "/app/in"), verify("busy", "box", "/app", sh("trap '' TERM; setsid sh -c 'while :; do sleep 1; done' >/dev/null 2>&1 & exit 0"))}
	more = kit.Files{"artifacts/one/one.txt": "1", "artifacts/sleep/s.py": "import time, subprocess\ndef run(input):\n    subprocess.Popen(['sleep', '1000'], start_new_session=True)\n    time.sleep(1000)\n"}
	switch moment {
	case "deploy":
		return task, more, "box (deploy_sandbox)"
	case "load":
		return task.with(map[string]any{"id": "late", "type": "load_artifact", "sandbox_name": "box", "urls": []string{slowServer(t)}, "destination_path": "/app/in"}), more, "late (load_artifact)"
	case "verify":
		return task.with(verify("late", "box", "/app", sh("trap '' TERM; setsid sleep 1000 & sleep 1000; sleep 1000"))), more, "late (verify_sandbox)"
	case "run_code":
		return task.with(code("late", "box", "sleep", nil)), more, "late (run_code)"
	case "collect":
		return task.with(verify("big", "box", "/app/in", sh("for i in 1 2 3 4 5 6 7 8 9; do dd if=/dev/zero of=big$i bs=1 count=0 seek=4G; done")), collect("late", "box", "/app/in")), more, "late (collect_artifacts)"
	case "teardown":
		return task.with(map[string]any{"id": "late", "type": "teardown_sandboxes", "sandbox_names": []string{"box"}}), more, "late (teardown_sandboxes)"
	}
	t.Fatal(moment)
	return nil, nil, ""
}

// begun starts the bundle and waits until its moment has come.
func begun(t *testing.T, k *user, target, moment string) *process {
	t.Helper()
	task, more, line := stoppedAt(t, target, moment)
	p := k.start("run", k.bundle("stopped", task, more))
	t.Cleanup(p.kill)
	p.waitFor(line)
	switch moment {
	case "deploy", "teardown":
		time.Sleep(20 * time.Millisecond)
	default:
		time.Sleep(700 * time.Millisecond)
	}
	return p
}

// TestSignals stops runs politely: nothing is left, the record and the exit code say why.
func TestSignals(t *testing.T) {
	debian(t)
	// A program started by one that ignores hangups (nohup) ignores them as well; one that is caught here is not ignored there.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	n := 0
	for _, target := range targets {
		for _, moment := range moments {
			by := stops[n%len(stops)]
			n++
			t.Run(fmt.Sprintf("%s %s %v", target, moment, by.sig), func(t *testing.T) {
				t.Parallel()
				k := newUser(t)
				p := begun(t, k, target, moment)
				var volumes []string
				if target != "vm" && moment != "deploy" && moment != "teardown" && moment != "run_code" {
					for _, c := range k.containers() {
						volumes = append(volumes, anonymousVolumes(t, strings.Fields(c)[0])...)
					}
					if len(volumes) == 0 {
						t.Error("the image's volume is not there")
					}
				}
				begin := time.Now()
				p.signal(by.sig)
				if code := p.wait(); code != by.code {
					t.Errorf("exit code %d, want %d\n%s", code, by.code, p.text())
				}
				if took := time.Since(begin); took > 30*time.Second {
					t.Errorf("it took %s to stop\n%s", took, p.text())
				}
				if left := k.leftovers(); left != "" {
					t.Errorf("left behind: %s\n%s", left, p.text())
				}
				for _, v := range volumes {
					if volumeThere(t, v) {
						t.Errorf("the anonymous volume %s is left", v)
					}
				}
				if out := k.ok("sandbox", "list"); out != "No sandboxes.\n" && !onlyShared(out) {
					t.Errorf("sandbox list:\n%s", out)
				}
				if left, _ := filepath.Glob(filepath.Join(k.State, "object_store", ".agentenv-tmp", "*")); len(left) > 0 {
					for _, f := range left {
						if !strings.HasPrefix(filepath.Base(f), "lock-") {
							t.Errorf("left behind: %s", f)
						}
					}
				}
				record := k.instance(k.only(p.text()))
				if status := record.str("status"); status == "completed" && moment == "teardown" {
					return // the step was over before the signal came
				}
				if record.str("status") != "cancelled" || record.str("outcome_class") != "cancelled" || !strings.Contains(record.str("error"), by.reason) {
					t.Errorf("status %q, class %q, error %q; want %q\n%s", record.str("status"), record.str("outcome_class"), record.str("error"), by.reason, p.text())
				}
				if moment != "deploy" {
					k.rowsWhole(record.str("instance_id"), "box")
				}
			})
		}
	}
}

// only returns the id of the one run whose instance a text names.
func (k *user) only(text string) string {
	k.T.Helper()
	_, rest, found := strings.Cut(text, "instance @local/")
	if !found {
		k.T.Fatalf("no instance is named:\n%s", text)
	}
	return "@local/" + strings.Fields(rest)[0]
}

// onlyShared reports whether a list of sandboxes shows no sandbox of this kit: what others do at the same time shows too.
func onlyShared(out string) bool {
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "ID ") && !strings.Contains(line, "not in this ledger") && !strings.Contains(line, "shared") {
			return false
		}
	}
	return true
}

// TestKill kills runs: `sandbox list` shows what is up, `prune` removes it and nothing else, and the rows of what ran are whole.
func TestKill(t *testing.T) {
	debian(t)
	for _, target := range targets {
		for _, moment := range moments {
			t.Run(target+" "+moment, func(t *testing.T) {
				t.Parallel()
				k := newUser(t)
				p := begun(t, k, target, moment)
				p.kill()
				ids := k.listed()
				if len(ids) == 0 && moment != "deploy" && moment != "teardown" {
					t.Fatalf("nothing is listed\n%s", p.text())
				}
				if len(ids) > 0 && target != "vm" && moment != "deploy" && moment != "teardown" && len(k.containers()) != 1 {
					t.Errorf("containers: %v", k.containers())
				}
				twin := k.lookalike(ids)
				before := k.containers()
				if r := k.run("sandbox", "prune"); len(ids) > 0 && (r.Code != 1 || !strings.Contains(r.Stderr, "--yes") || !strings.Contains(r.Stdout, ids[0])) {
					t.Errorf("prune without --yes: %s", r)
				}
				// What the engine was told to remove before the kill, it goes on to remove.
				if after := k.containers(); moment != "teardown" && strings.Join(before, ",") != strings.Join(after, ",") {
					t.Errorf("prune without --yes removed: %v, then %v", before, after)
				}
				k.ok("sandbox", "prune", "--yes")
				if left := k.leftovers(); left != "" && !onlyTmp(k, left) {
					t.Errorf("left behind after prune: %s", left)
				}
				if ids := k.listed(); len(ids) != 0 {
					t.Errorf("still listed: %v", ids)
				}
				if twin != "" {
					if _, err := docker(t).Container(t.Context(), twin); err != nil {
						t.Errorf("the container that only looks alike: %v", err)
					}
				}
				if moment != "deploy" {
					k.rowsWhole("", "box")
				}
			})
		}
	}
}

// onlyTmp reports whether all that is left are files in the folder for temporary files, which a killed process cannot remove.
func onlyTmp(k *user, left string) bool {
	for _, one := range strings.Split(left, "; ") {
		if !strings.HasPrefix(one, k.Tmp+"/") {
			return false
		}
	}
	return true
}

// listed returns the ids of the sandboxes that the user's own ledger takes for up.
func (k *user) listed() []string {
	k.T.Helper()
	var out []string
	all := parse(k.T, k.ok("sandbox", "list", "--json")).at("sandboxes")
	for i := range all.len() {
		if owner := all.str(i, "owner"); owner != "shared" && owner != "not in this ledger" {
			out = append(out, all.str(i, "id"))
		}
	}
	return out
}

// lookalike makes a container whose name and labels nearly are those of a sandbox of the kit, and returns its id.
func (k *user) lookalike(ids []string) string {
	k.T.Helper()
	if len(ids) == 0 || strings.HasPrefix(ids[0], "pending") {
		return ""
	}
	e := docker(k.T)
	r, err := e.Client().ContainerCreate(k.T.Context(), client.ContainerCreateOptions{Name: "agent-" + ids[0] + "-2",
		Config: &container.Config{Image: busybox(k.T), Cmd: []string{"sleep", "1000"}, Labels: map[string]string{
			sandbox.LabelSandbox + ".old": ids[0], "agentenv": "true", "sandbox": ids[0], "note": sandbox.LabelSandbox + "=" + ids[0]}}})
	if err != nil {
		k.T.Fatal(err)
	}
	k.T.Cleanup(func() {
		if _, err := e.Client().ContainerRemove(context.Background(), r.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
			k.T.Logf("%s stays: %v", r.ID, err)
		}
	})
	return r.ID
}

// TestSignalWhileAnImageIsBuilt stops the program before any task started.
func TestSignalWhileAnImageIsBuilt(t *testing.T) {
	base := debian(t)
	t.Parallel()
	k := newUser(t)
	dir := k.bundle("build", steps{box("slow")}, kit.Files{"artifacts/slow/Dockerfile": "FROM " + base + "\nENV AT=" + k.Dir + "\nRUN echo begun && sleep 1000\n"})
	p := k.start("run", dir)
	defer p.kill()
	p.waitFor("sleep 1000")
	time.Sleep(500 * time.Millisecond)
	begin := time.Now()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 143 || !strings.Contains(p.text(), "Cancelled before any task started.") {
		t.Errorf("exit code %d\n%s", code, p.text())
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	// The engine ends the build's own process a moment later.
	eventually(t, k.leftovers)
	if !absent(filepath.Join(k.State, "document_store", "local.db")) && len(k.statuses()) != 0 {
		t.Errorf("a run was recorded: %v", k.statuses())
	}
}
