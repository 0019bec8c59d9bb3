package helper_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox/helper"
)

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "helper")
	if runtime.GOOS != "linux" {
		if _, err := helper.Install(dir); !fault.Is(err, fault.Unsupported) {
			t.Errorf("error %v, want an unsupported one", err)
		}
		return
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			at, err := helper.Install(dir)
			if err != nil {
				t.Error(err)
				return
			}
			err = exec.Command(at, "nonsense").Run()
			if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 {
				t.Errorf("it does not run: %v", err)
			}
		})
	}
	all.Wait()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	at := filepath.Join(dir, list[0].Name())
	if err := os.Truncate(at, 1000); err != nil { // as a full disk leaves it
		t.Fatal(err)
	}
	if again, err := helper.Install(dir); again != at || err != nil {
		t.Errorf("%q, %v", again, err)
	}
	if fi, err := os.Stat(at); err != nil || fi.Size() == 1000 {
		t.Errorf("a cut copy stays: %v", err)
	}
	if _, err := helper.Install("/dev/null/x"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("error %v, want an unavailable one", err)
	}
}
