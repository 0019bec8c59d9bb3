package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/sandbox/place"
)

func testProcesses(t *testing.T, b box) {
	ctx := t.Context()
	t.Run("no program", func(t *testing.T) {
		if _, err := b.Exec(ctx, place.Cmd{Argv: []string{"no-such-program"}}); !fault.Is(err, fault.NotFound) {
			t.Errorf("error %v, want a not-found one", err)
		}
		if _, err := b.LookPath(ctx, "no-such-program"); !fault.Is(err, fault.NotFound) {
			t.Errorf("LookPath: %v, want a not-found error", err)
		}
		if _, err := b.Exec(ctx, place.Cmd{}); !fault.Is(err, fault.Invalid) {
			t.Errorf("no command: %v, want an invalid error", err)
		}
	})
	if b.probe != "" {
		t.Run("probe", func(t *testing.T) { testProbe(t, b) })
	}
	if !b.shell {
		t.Run("no shell", func(t *testing.T) {
			if _, err := b.Exec(ctx, place.Cmd{Script: "true"}); !fault.Is(err, fault.NotFound) {
				t.Errorf("error %v, want a not-found one", err)
			}
			if _, err := place.Shell(ctx, b); !fault.Is(err, fault.NotFound) {
				t.Errorf("Shell: %v", err)
			}
		})
		return
	}
	put(t, b, b.work+"/p", place.Bytes("x", 0, nil))
	t.Run("outcome", func(t *testing.T) {
		r := sh(t, b, place.Cmd{Script: "printf 'out\\377'; echo err >&2; echo $SECRET >&2; exit 3", Env: map[string]string{"SECRET": "a b'c"}})
		if r.Code != 3 || string(r.Stdout) != "out\xff" || string(r.Stderr) != "err\na b'c\n" {
			t.Errorf("%d %q %q", r.Code, r.Stdout, r.Stderr)
		}
		if place.Text(r.Stdout) != "out\uFFFD" {
			t.Errorf("text %q", place.Text(r.Stdout))
		}
		if r.Shell != "bash" && r.Shell != "sh" {
			t.Errorf("shell %q", r.Shell)
		}
		if r := sh(t, b, place.Cmd{Script: "kill -9 $$"}); r.Code != 137 {
			t.Errorf("killed by signal 9: code %d, want 137", r.Code)
		}
	})
	t.Run("user and folder", func(t *testing.T) {
		if b.uid != "" {
			if r := sh(t, b, place.Cmd{Script: "id -u"}); strings.TrimSpace(string(r.Stdout)) != b.uid {
				t.Errorf("own user is %q, want %s", r.Stdout, b.uid)
			}
			if r := sh(t, b, place.Cmd{Script: "id -u; pwd", User: place.Root, Dir: b.secret}); string(r.Stdout) != "0\n"+b.secret+"\n" {
				t.Errorf("as root: %q", r.Stdout)
			}
			if r := sh(t, b, place.Cmd{Script: "pwd", Dir: b.secret}); string(r.Stdout) != b.secret+"\n" {
				t.Errorf("a folder the user may not enter: %q %q", r.Stdout, r.Stderr)
			}
		}
		if _, err := b.Exec(ctx, place.Cmd{Script: "pwd", Dir: b.work + "/absent"}); !fault.Is(err, fault.NotFound) {
			t.Errorf("an absent folder: %v, want a not-found error", err)
		}
	})
	t.Run("input", func(t *testing.T) {
		if r := sh(t, b, place.Cmd{Script: "cat; echo end", Timeout: 10 * time.Second}); string(r.Stdout) != "end\n" {
			t.Errorf("no input: %q", r.Stdout)
		}
		in := bytes.Repeat([]byte("0123456789"), 100_000)
		if r := sh(t, b, place.Cmd{Argv: []string{"cat"}, Stdin: bytes.NewReader(in)}); !bytes.Equal(r.Stdout, in) {
			t.Errorf("%d of %d bytes came back", len(r.Stdout), len(in))
		}
		if r := sh(t, b, place.Cmd{Script: "exit 0", Stdin: bytes.NewReader(in)}); r.Code != 0 {
			t.Errorf("unread input: code %d", r.Code)
		}
	})
	t.Run("background child", func(t *testing.T) {
		began := time.Now()
		r := sh(t, b, place.Cmd{Script: "sleep 20 & echo done"})
		if string(r.Stdout) != "done\n" || time.Since(began) > 3*time.Second || !r.BackgroundLeftOpen {
			t.Errorf("%q after %s, left open: %v", r.Stdout, time.Since(began), r.BackgroundLeftOpen)
		}
	})
	t.Run("cut output", func(t *testing.T) {
		r := sh(t, b, place.Cmd{Script: "head -c 3000000 /dev/zero; echo; echo tail", Keep: 1000})
		if len(r.Stdout) != 1000 || r.CutStdout != 3000006-1000 || !bytes.HasSuffix(r.Stdout, []byte("\ntail\n")) {
			t.Errorf("kept %d, cut %d", len(r.Stdout), r.CutStdout)
		}
		if text := place.TextCut(r.Stdout, r.CutStdout); !strings.Contains(text, "2999006 bytes were cut") {
			t.Errorf("no note of what was cut: %.80q", text)
		}
		if _, err := b.Exec(ctx, place.Cmd{Script: "while :; do echo x; done", Stdout: broken{}, Grace: 100 * time.Millisecond}); err == nil {
			t.Error("a writer that fails is no error")
		}
	})
	t.Run("deadline", func(t *testing.T) {
		file := b.work + "/p/d"
		script := `(setsid sh -c 'trap "" TERM; while :; do echo x >> "` + file + `"; sleep 0.05; done' >/dev/null 2>&1 &)
			(env -i setsid sh -c 'trap "" TERM; while :; do echo x >> "` + file + `"; sleep 0.05; done' &)
			(env -i setsid sh -c '(trap "" TERM; while :; do echo x >> "` + file + `"; sleep 0.05; done) &' &)
			trap "" TERM; while :; do echo x >> "` + file + `"; sleep 0.05; done`
		testEnds(t, b, place.Cmd{Script: script, User: place.Root, Timeout: time.Second, Grace: 300 * time.Millisecond}, file)
	})
	t.Run("signals", func(t *testing.T) {
		r := sh(t, b, place.Cmd{Script: `for s in HUP INT PIPE TERM; do trap "echo $s" $s; kill -$s $$; done`})
		if string(r.Stdout) != "HUP\nINT\nPIPE\nTERM\n" {
			t.Errorf("a command does not get its signals: %q %q", r.Stdout, r.Stderr)
		}
		if r := sh(t, b, place.Cmd{Script: "trap 'echo group; exit 4' TERM; kill 0; sleep 5"}); r.Code != 4 || string(r.Stdout) != "group\n" {
			t.Errorf("a signal to its own group: code %d, %q", r.Code, r.Stdout)
		}
	})
	t.Run("fork bomb", func(t *testing.T) {
		file := b.work + "/p/f"
		testEnds(t, b, place.Cmd{Script: `f() { trap "" TERM; echo x >> "` + file + `"; sleep 0.02; f & f2=$!; wait $f2; }; f`,
			User: place.Root, Timeout: time.Second, Grace: 50 * time.Millisecond}, file)
	})
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		began := time.Now()
		r, err := b.Exec(ctx, place.Cmd{Script: "echo before; sleep 60"})
		if !fault.Is(err, fault.Canceled) || time.Since(began) > 5*time.Second || r == nil || string(r.Stdout) != "before\n" {
			t.Errorf("%v after %s with %+v", err, time.Since(began), r)
		}
	})
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("full") }

func sh(t *testing.T, p place.Place, c place.Cmd) *place.Result {
	t.Helper()
	r, err := p.Exec(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// testEnds runs a command into its deadline and checks that nothing of it writes to file afterwards.
func testEnds(t *testing.T, p place.Place, c place.Cmd, file string) {
	t.Helper()
	began := time.Now()
	_, err := p.Exec(t.Context(), c)
	if !fault.Is(err, fault.Timeout) || time.Since(began) > c.Timeout+c.Grace+8*time.Second {
		t.Fatalf("%v after %s, want a timeout", err, time.Since(began))
	}
	first, err := p.Stat(t.Context(), file, false)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	later, err := p.Stat(t.Context(), file, false)
	if err != nil || later.Size != first.Size {
		t.Errorf("it still writes: %d, then %d bytes (%v)", first.Size, later.Size, err)
	}
}

func testProbe(t *testing.T, b box) {
	if r := sh(t, b, place.Cmd{Argv: []string{b.probe, "id"}}); strings.TrimSpace(string(r.Stdout)) != b.uid {
		t.Errorf("own user is %q, want %s", r.Stdout, b.uid)
	}
	if r := sh(t, b, place.Cmd{Argv: []string{b.probe, "stdin"}, Timeout: 10 * time.Second}); string(r.Stdout) != "0\n" {
		t.Errorf("no input: %q", r.Stdout)
	}
	began := time.Now()
	if r := sh(t, b, place.Cmd{Argv: []string{b.probe, "background"}}); string(r.Stdout) != "done\n" || time.Since(began) > 3*time.Second {
		t.Errorf("background child: %q after %s", r.Stdout, time.Since(began))
	}
	put(t, b, b.work+"/p", place.Bytes("x", 0, nil))
	file := b.work + "/p/stubborn"
	testEnds(t, b, place.Cmd{Argv: []string{b.probe, "stubborn", file}, User: place.Root, Timeout: time.Second, Grace: 200 * time.Millisecond}, file)
}
