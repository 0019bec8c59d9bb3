//go:build integration

package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"agentenv/test/kit"
)

// bigScript makes a file of 1 GiB that is no two blocks the same, and returns its digest.
const bigScript = `import hashlib
def run(input):
    h = hashlib.sha256()
    with open("/secret/big", "wb") as f:
        for i in range(1024):
            block = i.to_bytes(8, "big") * 131072
            f.write(block)
            h.update(block)
    return h.hexdigest()
`

// TestCollectingAGibibyte moves one large file without holding it in memory.
func TestCollectingAGibibyte(t *testing.T) {
	image := debian(t)
	t.Parallel()
	k := newUser(t)
	b := box(image)
	b["sandbox_type"] = "docker"
	dir := k.bundle("big", steps{b, code("make", "box", "make", nil), collect("out", "box", "/secret", "big")}, kit.Files{"artifacts/make/m.py": bigScript})
	cmd := k.command("run", "--json", dir)
	r, held := watched(t, cmd)
	if r.Code != 0 {
		t.Fatal(r)
	}
	record := k.instance(parse(t, r.Stdout).str("tasks", 0, "instance"))
	at, ok := strings.CutPrefix(record.str("context", "metadata", "collected_artifacts", "out", "artifacts", "big"), "file://")
	if !ok {
		t.Fatalf("no object: %s", record)
	}
	f, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if got := hex.EncodeToString(h.Sum(nil)); err != nil || n != 1<<30 || got != record.str("context", "metadata", "script_results", "make") {
		t.Errorf("%d bytes, %s, %v; the sandbox's digest is %s", n, got, err, record.str("context", "metadata", "script_results", "make"))
	}
	if held == 0 || held > 96<<10 {
		t.Errorf("the program held %d KiB", held)
	}
}

// watched runs cmd to its end and returns the most memory it held, in KiB. What wait reports of a child includes what its
// parent held when it started the child, so the child's own mark is read while it runs.
func watched(t *testing.T, cmd *exec.Cmd) (r kit.Result, held int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return kit.Result{Code: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errs.String()}, held
		case <-tick.C:
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			for line := range strings.Lines(string(status)) {
				if mark, ok := strings.CutPrefix(line, "VmHWM:"); ok {
					_, _ = fmt.Sscan(mark, &held)
				}
			}
		}
	}
}
