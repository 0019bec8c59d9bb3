package cli

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentenv/store/doc"
)

// whenBegun sends this process a signal for each run that says that it began.
func whenBegun(began chan string, sigs ...syscall.Signal) *sync.WaitGroup {
	var sent sync.WaitGroup
	sent.Go(func() {
		<-began
		for _, sig := range sigs {
			_ = syscall.Kill(os.Getpid(), sig)
			time.Sleep(400 * time.Millisecond) // sooner it would be the same one
		}
	})
	return &sent
}

// TestSignals is not parallel: signals reach every command that runs.
func TestSignals(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) { // as nohup starts its programs, which the command honours
		heard := make(chan os.Signal, 1)
		signal.Notify(heard, syscall.SIGHUP)
		signal.Stop(heard)
	}
	b, up, began := newRunBench(t, nil)
	b.store("w", `[{"id":"box","type":"deploys","name":"box"},{"id":"a","type":"waits"}]`)
	for sig, c := range map[syscall.Signal]struct {
		code   int
		reason string
	}{syscall.SIGINT: {130, "cancelled by Ctrl-C"}, syscall.SIGTERM: {143, "cancelled by SIGTERM"}, syscall.SIGHUP: {129, "cancelled by SIGHUP"}} {
		sent := whenBegun(began, sig)
		code, out, errs := b.run("task", "run", "--id", "w", "--k", "2", "-j", "1", "--output-dir", "@/out-"+sig.String())
		sent.Wait()
		want := `[run 1] Run RUNNING
[run 1] Completed step [1/2]: deploys (id=box)
Cancelling the runs (Ctrl-C again to stop waiting for them)
`
		if code != c.code || !strings.Contains(out, want) || !strings.Contains(out, "[run 1] Run CANCELED: "+c.reason+"\n") || !strings.Contains(out, "[run 2] Run CANCELED: "+c.reason+"\n") ||
			!strings.Contains(out, "Tore down 1 sandbox.") || !strings.HasSuffix(out, "\nTask cancelled.\n") {
			t.Errorf("%s: exit code %d %s\n%s", sig, code, errs, out)
		}
		in, err := b.opened().Instances.Get(t.Context(), firstInstance.FindStringSubmatch(out)[1])
		if err != nil || in.Status != "cancelled" || in.Error != c.reason {
			t.Errorf("%s: %v, %+v", sig, err, in)
		}
	}
	b.store("s", `[{"id":"a","type":"stays"}]`)
	sent := whenBegun(began, syscall.SIGTERM, syscall.SIGINT)
	start := time.Now()
	code, out, errs := b.run("task", "run", "--id", "s", "--json", "--junit", "@/j.xml", "--output-dir", "@/out-s")
	sent.Wait()
	if code != 143 || !strings.HasSuffix(errs, "(Ctrl-C again to stop waiting for them)\nStopped waiting; what the runs deployed may still be up\n") || time.Since(start) > 2*time.Second {
		t.Errorf("a second signal: exit code %d after %s %s\n%s", code, time.Since(start), errs, out)
	}
	d, err := doc.ParseObject([]byte(out), doc.Options{})
	junit, jerr := os.ReadFile(filepath.Join(b.dir, "j.xml"))
	if code != 143 || err != nil || jerr != nil || d.Str("signal") != "SIGTERM" || d.Arr("runs")[0].(*doc.Object).Str("outcome_class") != "cancelled" || !strings.Contains(d.Arr("runs")[0].(*doc.Object).Str("error"), "not waited for") || !strings.Contains(string(junit), "<skipped") || strings.Contains(string(junit), "didn&#39;t start") {
		t.Errorf("reports after a second signal: exit code %d, %v, %v %s\n%s\n%s", code, err, jerr, errs, out, junit)
	}
	time.Sleep(3 * time.Second)       // the run that is not waited for writes to the folder of the bench
	caught := make(chan os.Signal, 8) // the second one may come when the command has ended
	signal.Notify(caught, syscall.SIGTERM)
	defer signal.Stop(caught)
	sent = &sync.WaitGroup{}
	sent.Go(func() { // as timeout(1) does
		<-began
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		time.Sleep(2 * time.Millisecond)
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	})
	code, out, errs = b.run("task", "run", "--id", "w", "--output-dir", "@/out-two")
	sent.Wait()
	if code != 143 || !strings.HasSuffix(out, "Tore down 1 sandbox.\nTask cancelled.\n") {
		t.Errorf("two signals at once: exit code %d %s\n%s", code, errs, out)
	}
	b.store("k", `[{"id":"box","type":"deploys","name":"box"},{"id":"c","type":"scores","verifier_id":"v"}]`)
	up.mu.Lock()
	up.up = map[string][]string{}
	up.mu.Unlock()
	sent = &sync.WaitGroup{}
	sent.Go(func() {
		time.Sleep(time.Second)
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	})
	code, out, errs = b.run("task", "run", "--id", "k", "--keep", "--output-dir", "@/out-k")
	sent.Wait()
	want := "Kept up:\n  instance k-INSTANCE\n    fake-box  fake  sandbox box\n      folder  /f\n\nHolding 1 sandbox up; Ctrl-C tears them down.\n\nTore down 1 sandbox.\nTask completed!\n"
	if code != 0 || !strings.HasSuffix(even(out), want) || !strings.Contains(errs, "Tearing down 1 sandbox (Ctrl-C again to stop now)") {
		t.Errorf("kept: exit code %d %s\n%s\nwant\n%s", code, errs, even(out), want)
	}
	if len(up.up) != 0 {
		t.Errorf("still up: %v", up.up)
	}
}
