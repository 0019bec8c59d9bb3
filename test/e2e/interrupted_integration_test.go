//go:build integration

package e2e_test

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv/test/kit"
)

// holds reports whether a folder holds a file of at least some bytes: by then a command is in the middle of writing there.
func holds(dir string, bytes int64) bool {
	found := false
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() { // what is written comes and goes
			if info, err := d.Info(); err == nil && info.Size() >= bytes {
				found = true
				return fs.SkipAll
			}
		}
		return nil
	})
	return found
}

// hole makes a file of so many bytes that takes no room.
func hole(t testing.TB, file string, bytes int64) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(bytes); err != nil {
		t.Fatal(err)
	}
}

// TestSignalsInCommands stops commands other than run in the middle of their work: they say so, exit with 128 and the number of the
// signal, and what they were about to make is not there, not even in part.
func TestSignalsInCommands(t *testing.T) {
	docker(t)
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	const started = 1 << 20 // bytes written, when a command is taken to be in the middle
	universe := []string{"artifact", "file-artifact-universe"}
	for name, c := range map[string]struct {
		ready  func(k *user) // makes what the command works on
		args   []string
		middle func(k *user) bool
	}{
		"put of a folder": {
			ready:  func(k *user) { hole(t, filepath.Join(k.Home, "set", "big.bin"), 64<<30) },
			args:   append(universe, "put-bundled", "--id", "big", "--file-dir", "set"),
			middle: func(k *user) bool { return holds(filepath.Join(k.State, "object_store"), started) },
		},
		"put of a file": {
			ready:  func(k *user) { hole(t, filepath.Join(k.Home, "big.bin"), 64<<30) },
			args:   []string{"artifact", "file", "put", "big.bin", "--id", "big"},
			middle: func(k *user) bool { return holds(filepath.Join(k.State, "object_store"), started) },
		},
		"put of a skill": {
			ready: func(k *user) {
				kit.Write(t, filepath.Join(k.Home, "big"), kit.Files{"SKILL.md": "---\nname: big\ndescription: d\n---\nBody\n"})
				hole(t, filepath.Join(k.Home, "big", "data.bin"), 64<<30)
			},
			args:   []string{"artifact", "skill", "put", "--id", "big", "--skill-dir", "big"},
			middle: func(k *user) bool { return holds(filepath.Join(k.State, "object_store"), started) },
		},
		"get of a set": {ready: (*user).bigSet, args: append(universe, "get", "--id", "set", "--output-dir", "out"), middle: (*user).downloading},
		"get of many":  {ready: (*user).bigSet, args: append(universe, "get-many", "--id", "set", "--output-dir", "out"), middle: (*user).downloading},
		"prune":        {ready: (*user).deadEngine, args: []string{"sandbox", "prune", "--yes"}, middle: (*user).asking},
		"list":         {ready: (*user).deadEngine, args: []string{"sandbox", "list"}, middle: (*user).asking},
		"doctor":       {ready: (*user).deadEngine, args: []string{"doctor"}, middle: (*user).asking},
	} {
		for _, by := range stops {
			t.Run(fmt.Sprintf("%s %v", name, by.sig), func(t *testing.T) {
				t.Parallel()
				k := newUser(t)
				k.ok("run", "hello") // there is something that must stay as it is
				c.ready(k)
				objects := prints(t, filepath.Join(k.State, "object_store", "artifacts"))
				p := k.start(c.args...)
				t.Cleanup(p.kill)
				for !c.middle(k) {
					select {
					case <-p.done:
						t.Fatalf("the command ended before it came to its middle:\n%s", p.text())
					case <-time.After(2 * time.Millisecond):
					}
				}
				begin := time.Now()
				p.signal(by.sig)
				if code := p.wait(); code != by.code || !strings.Contains(p.text(), "Cancelled") {
					t.Errorf("exit code %d, want %d\n%s", code, by.code, p.text())
				}
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("it took %s to stop", took)
				}
				if tmp := filepath.Join(k.State, "object_store", ".agentenv-tmp"); holds(tmp, 1) {
					t.Errorf("left behind:\n%s", prints(t, tmp))
				}
				if out := filepath.Join(k.Home, "out"); !absent(out) {
					for name, text := range kit.Read(t, out) {
						if len(text) != setFile || !strings.HasSuffix(name, ".bin") {
							t.Errorf("left behind: %s, %d bytes", name, len(text))
						}
					}
				}
				if left := k.leftovers(); left != "" {
					t.Errorf("left behind: %s", left)
				}
				if r := k.run("artifact", "show", "--id", "big"); r.Code != 1 {
					t.Errorf("it is stored: %s", r)
				}
				if after := prints(t, filepath.Join(k.State, "object_store", "artifacts")); after != objects {
					t.Errorf("objects before:\n%s\nafter:\n%s", objects, after)
				}
			})
		}
	}
}

// setFile is the size of each file of the set that bigSet stores.
const setFile = 2 << 20

// bigSet stores a set of files that takes a while to write out.
func (k *user) bigSet() {
	k.T.Helper()
	for i := range 200 {
		hole(k.T, filepath.Join(k.Home, "set", fmt.Sprintf("%03d.bin", i)), setFile)
	}
	k.ok("artifact", "file-artifact-universe", "put-bundled", "--id", "set", "--file-dir", "set")
}

// downloading reports whether a command is in the middle of writing below the folder out.
func (k *user) downloading() bool { return holds(filepath.Join(k.Home, "out"), 1) }

// deadEngine is an engine that takes every call and answers none.
func (k *user) deadEngine() {
	k.T.Helper()
	l, err := net.Listen("unix", filepath.Join(k.Dir, "engine.sock"))
	if err != nil {
		k.T.Fatal(err)
	}
	k.T.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_ = os.WriteFile(filepath.Join(k.Dir, "asked"), nil, 0o644)
		}
	}()
	k.Env = append(k.Env, "DOCKER_HOST=unix://"+l.Addr().String())
}

// asking reports whether a command waits for the engine's answer.
func (k *user) asking() bool { return !absent(filepath.Join(k.Dir, "asked")) }
