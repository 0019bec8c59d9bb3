package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentenv/config"
	"agentenv/fault"
	"agentenv/store/doc"
)

func TestStateRoot(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		want string
	}{
		{"absolute", map[string]string{"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/agent-env"},
		{"relative is ignored", map[string]string{"XDG_STATE_HOME": "s", "HOME": "/h"}, "/h/.local/state/agent-env"},
		{"empty", map[string]string{"XDG_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/agent-env"},
	}
	for _, test := range tests {
		c := config.Load(func(n string) (string, bool) { v, set := test.env[n]; return v, set }, t.TempDir())
		if got := c.StateRoot(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestDiscovery(t *testing.T) {
	t.Run("two folders up, the nearest wins", func(t *testing.T) {
		w := newWorld(t)
		top := w.dir
		w.fileIn(top, "[model]\nbase_url = \"far\"")
		mid := filepath.Join(top, "a")
		want := w.fileIn(mid, "[model]\nbase_url = \"near\"")
		w.dir = filepath.Join(mid, "b", "c")
		if err := os.MkdirAll(w.dir, 0o777); err != nil {
			t.Fatal(err)
		}
		c := w.load()
		if c.Path() != want || c.Err() != nil {
			t.Errorf("found %s (%v), want %s", c.Path(), c.Err(), want)
		}
	})
	t.Run("through a symlinked working folder", func(t *testing.T) {
		w := newWorld(t)
		want := w.file("")
		inner := filepath.Join(w.dir, "in")
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Mkdir(inner, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(inner, link); err != nil {
			t.Fatal(err)
		}
		w.dir = link
		if got := w.load().Path(); got != want {
			t.Errorf("found %s, want %s", got, want)
		}
	})
	t.Run("the variable, relative to the working folder", func(t *testing.T) {
		w := newWorld(t)
		w.file("[model]\nbase_url = \"x\"")
		w.env["AGENT_ENV_CONFIG"] = ".agentenv/config.toml"
		c := w.load()
		m, err := c.Model()
		if err != nil || c.Path() != ".agentenv/config.toml" {
			t.Fatal(c.Path(), err)
		}
		if b, err := m.BaseURL(); b != "x" || err != nil {
			t.Errorf("base URL %q, %v", b, err)
		}
	})
	t.Run("the variable names nothing", func(t *testing.T) {
		w := newWorld(t)
		w.file("")
		w.env["AGENT_ENV_CONFIG"] = "/nope"
		_, err := w.load().Seam("document")
		fails(t, err, fault.Invalid, "AGENT_ENV_CONFIG", "/nope")
		w.env["AGENT_ENV_DOCUMENT_STORE"] = "local"
		if _, err := w.load().Seam("document"); err != nil {
			t.Errorf("the variable of the store does not win: %v", err)
		}
	})
	t.Run("an empty variable is unset", func(t *testing.T) {
		w := newWorld(t)
		want := w.file("")
		w.env["AGENT_ENV_CONFIG"] = ""
		if got := w.load().Path(); got != want {
			t.Errorf("found %q, want %s", got, want)
		}
	})
	t.Run("a pipe", func(t *testing.T) {
		w := newWorld(t)
		path := w.file("")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o666); err != nil {
			t.Fatal(err)
		}
		fails(t, w.load().Err(), fault.Invalid, path, "not a regular file")
	})
	t.Run("a file changed after loading", func(t *testing.T) {
		w := newWorld(t)
		path := w.file("[model]\nbase_url = \"x\"")
		c := w.load()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		m, err := c.Model()
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := m.BaseURL(); b != "x" {
			t.Errorf("base URL %q, want what was read at first", b)
		}
	})
}

func TestText(t *testing.T) {
	tests := []struct {
		name, text string
		says       []string // nil: accepted
	}{
		{"byte order mark", "\ufeff[model]\nbase_url = \"x\"", nil},
		{"not UTF-8", "a = 1\nb = \"\xff\"", []string{"UTF-8", "line 2, column 6"}},
		{"malformed", "a = 1\nb = \n", []string{"malformed", "line 2"}},
		{"twice", "a = 1\na = 2\n", []string{"malformed"}},
		{"no number", "[x]\na = nan\n", []string{"x.a", "NaN"}},
		{"infinite", "a = [1.0, -inf]\n", []string{"a.1", "-Infinity"}},
		{"nested too deeply", "a = " + strings.Repeat("[", 100000), []string{"nested", "line 1, column 205"}},
		{"dotted too deeply", strings.Repeat("a.", 300) + "a = 1", []string{"nested"}},
		{"brackets in text", "a = \"" + strings.Repeat("[", 300) + "\" # " + strings.Repeat("{", 300), nil},
		{"too large", "#" + strings.Repeat("x", 8<<20), []string{"8 MiB"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			path := w.file(test.text)
			c := w.load()
			if test.says == nil {
				if c.Err() != nil {
					t.Error(c.Err())
				}
				return
			}
			fails(t, c.Err(), fault.Invalid, append(test.says, path)...)
			if _, err := c.Sandbox(); err == nil || err.Error() != c.Err().Error() {
				t.Errorf("a section is read from a broken file: %v", err)
			}
			w.env["AGENT_ENV_DOCUMENT_STORE"] = "local"
			if _, err := c.Seam("document"); err != nil {
				t.Errorf("a broken file breaks a setting of the environment: %v", err)
			}
		})
	}
}

func TestKeysKeepTheirOrder(t *testing.T) {
	w := newWorld(t)
	w.file("[plugins.p]\nz = 1\na = {y = 1, b = 2}\n[[plugins.p.list]]\nq = 1\nc = 2\n[[plugins.p.list]]\nc = 1\nq = 2\n[plugins.p.m]\nk = [{x = 1, d = 2}]\n")
	o, err := w.load().Plugin("p")
	if err != nil {
		t.Fatal(err)
	}
	got, err := doc.Compact(o)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"z":1,"a":{"y":1,"b":2},"list":[{"q":1,"c":2},{"c":1,"q":2}],"m":{"k":[{"x":1,"d":2}]}}`
	if !bytes.Equal(got, []byte(want)) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestReadersDoNotShare(t *testing.T) {
	w := newWorld(t)
	w.file("[plugins.p]\na = {b = [1]}\n")
	c := w.load()
	first, _ := c.Plugin("p")
	first.Obj("a").Set("b", "changed")
	second, _ := c.Plugin("p")
	equal(t, second, doc.Of("a", doc.Of("b", []any{doc.Int(1)})))
}

func TestTwoConfigsKeepTheirOwnFile(t *testing.T) {
	a, b := newWorld(t), newWorld(t)
	a.file("[agents]\ndefault_a2a_agent_id = \"a\"")
	b.file("[agents]\ndefault_a2a_agent_id = \"b\"")
	ca, cb := a.load(), b.load()
	x, _ := ca.Agents()
	y, _ := cb.Agents()
	if x.DefaultID != "a" || y.DefaultID != "b" {
		t.Errorf("got %q and %q", x.DefaultID, y.DefaultID)
	}
}

func FuzzFile(f *testing.F) {
	for _, s := range []string{"", "[stores.document]\nimpl = \"a:b\"\nconfig = {a = 1}\n", "a.b.\"c.d\" = [1, {x = \"env:Y?z\"}]\n[[l]]\nm = 1\n[[l]]\nn = 2\n",
		"[plugins.x]\nd = 2024-01-02T03:04:05Z\n", "\ufeffx = nan", "[sandbox]\nproviders = {local = \"x\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w := newWorld(t)
		w.file(string(text))
		c := w.load()
		r := c.Show()
		if _, err := doc.MarshalIndent(r.JSON()); err != nil {
			t.Fatalf("the report is no JSON: %v", err)
		}
		for _, line := range strings.Split(r.Text(), "\n") {
			if strings.ContainsFunc(line, func(x rune) bool { return x < ' ' || x == 0x7f }) {
				t.Fatalf("control characters in %q", line)
			}
		}
		c.Check()
		if _, err := doc.Marshal(config.SourcesJSON(c.Sources())); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzExplain(f *testing.F) {
	w := newWorld(f)
	w.file("[plugins.\"a.b\"]\nk = [1]\n[model]\nbase_url = \"x\"\n")
	c := w.load()
	for _, s := range []string{"", "document", "plugins.\"a.b\".k.0", "a..b", "'", "\"\\\"\"", "stores", "model.base_url"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		e := c.Explain(path)
		e.Text()
		if _, err := doc.Marshal(e.JSON()); err != nil {
			t.Fatal(err)
		}
	})
}
