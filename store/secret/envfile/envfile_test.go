package envfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store/secret/envfile"
)

func write(t testing.TB, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "secrets.yaml")
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func env(name string) (string, bool) {
	v, ok := map[string]string{"A": "from env", "EMPTY": ""}[name]
	return v, ok
}

func TestOrder(t *testing.T) {
	path := write(t, "A: file\nB: file\nC: file\n")
	s, err := envfile.New(envfile.Options{Env: env, Values: map[string]any{"A": "value", "B": "value", "n": int64(3), "none": nil}, Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"A": "from env", "B": "value", "C": "file", "n": "3", "EMPTY": ""} {
		if v, ok, err := s.Get(t.Context(), name); v != want || !ok || err != nil {
			t.Errorf("%s: %q, %v, %v", name, v, ok, err)
		}
	}
	for _, name := range []string{"none", "missing"} {
		if v, ok, err := s.Get(t.Context(), name); ok || err != nil {
			t.Errorf("%s: %q, %v", name, v, err)
		}
	}
	all, err := s.Bundle(t.Context())
	if err != nil || len(all) != 4 || all["A"] != "value" || all["C"] != "file" {
		t.Error(all, err)
	}
	off, err := envfile.FromConfig(map[string]any{"use_env": false, "file_path": path}, env)
	if err != nil {
		t.Fatal(err)
	}
	if v, _, _ := off.Get(t.Context(), "A"); v != "file" {
		t.Error(v)
	}
}

func TestTextOfValues(t *testing.T) {
	path := write(t, "yes: true\nf: 1.50\nh: 0x10\ni: 007x\nd: 2026-01-02\nnull_: null\ntilde: ~\nq: \"1.50\"\non_: on\nqon: 'on'\nblock: |\n  a\n  b\n1: one\nneg: -3\n")
	s, err := envfile.New(envfile.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"True": "True", "f": "1.5", "h": "16", "i": "007x", "d": "2026-01-02", "q": "1.50", "on_": "True", "qon": "on", "block": "a\nb\n", "1": "one", "neg": "-3"} {
		if v, ok, err := s.Get(t.Context(), name); v != want || !ok || err != nil {
			t.Errorf("%s: %q, %v, %v, want %q", name, v, ok, err, want)
		}
	}
	for _, name := range []string{"null_", "tilde"} {
		if v, ok, err := s.Get(t.Context(), name); ok || err != nil {
			t.Errorf("%s: %q, %v", name, v, err)
		}
	}
	js, _ := envfile.New(envfile.Options{Path: write(t, `{"k": "v", "e": ""}`)})
	if v, ok, err := js.Get(t.Context(), "e"); v != "" || !ok || err != nil {
		t.Error(v, ok, err)
	}
}

func TestBadFilesKeepTheirSecrets(t *testing.T) {
	for _, text := range []string{"k: [hunter2", "- hunter2\n", "hunter2", "k: {a: hunter2}\n", "k: [hunter2]\n", "", "a: 1\n---\nb: hunter2\n", "k: hunter2: x\n"} {
		s, err := envfile.New(envfile.Options{Path: write(t, text)})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.Get(t.Context(), "k")
		if fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "secrets.yaml") {
			t.Errorf("%q: %v", text, err)
		}
	}
	s, _ := envfile.New(envfile.Options{Path: "/nonexistent/secrets.yaml"})
	if _, _, err := s.Get(t.Context(), "k"); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
	if _, err := envfile.New(envfile.Options{Values: map[string]any{"k": []any{"hunter2"}}}); fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	if _, err := envfile.FromConfig(map[string]any{"use_env": "yes"}, nil); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
}

func FuzzFile(f *testing.F) {
	for _, s := range []string{"a: b", "{\"a\": 1}", "- x", "a: &x 1\nb: *x", "? a\n: b", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := envfile.New(envfile.Options{Path: write(t, text)})
		if err != nil {
			t.Fatal(err)
		}
		s.Bundle(t.Context())
	})
}
