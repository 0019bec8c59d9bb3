package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
)

// A ledger that is no database is an Invalid error of one line that names the file and the way out, for reading and writing alike;
// the file is left as it is, and a new one works once it is out of the way.
func TestDamagedLedger(t *testing.T) {
	for name, content := range map[string]string{
		"text": strings.Repeat("garbage\n", 2000), "zeros and ones": strings.Repeat("\x00\x01", 9000), "a header alone": "SQLite format 3\x00" + strings.Repeat("\xa5", 9000),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "sandboxes.db")
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			ledger := sandbox.OpenLedger(file)
			defer ledger.Close()
			row := sandbox.Row{ID: "a", State: sandbox.Live, CreatedAt: time.Now()}
			_, readErr := ledger.Alive(t.Context(), "")
			for _, err := range []error{readErr, ledger.Add(t.Context(), row)} {
				if !fault.Is(err, fault.Invalid) {
					t.Fatal(err)
				}
				for _, w := range []string{file, "damaged", "move it and the -wal and -shm files beside it away"} {
					if text := err.Error(); !strings.Contains(text, w) || strings.Contains(text, "\n") {
						t.Errorf("%q is not in one line %q", w, text)
					}
				}
			}
			if now, err := os.ReadFile(file); err != nil || string(now) != content {
				t.Errorf("the file changed: %d bytes, %v", len(now), err)
			}
			for _, end := range []string{"", "-wal", "-shm"} {
				if err := os.RemoveAll(file + end); err != nil {
					t.Fatal(err)
				}
			}
			if err := ledger.Add(t.Context(), row); err != nil {
				t.Error(err)
			}
		})
	}
}
