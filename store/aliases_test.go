package store_test

import (
	"slices"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store"
)

func TestNear(t *testing.T) {
	t.Parallel()
	known := []string{"claude-code", "codex", "gemini", "pi", "größe"}
	for name, want := range map[string][]string{"clade-code": {"claude-code"}, "Claude-Code": {"claude-code"}, "code": {"codex"}, "pii": {"pi"}, "xx": nil, "p": {"pi"}, "gemni": {"gemini"}, "gemnii": {"gemini"},
		"nobody": nil, "": nil, "Gro\u0308sse": {"größe"}, "gro\u0308ße": {"größe"}} {
		if got := store.Near(name, known); !slices.Equal(got, want) {
			t.Errorf("%q: %q, not %q", name, got, want)
		}
	}
	if got := store.Near("aaaa", []string{"aaab", "aaac", "aaad", "aaae"}); len(got) != 3 {
		t.Errorf("%q", got)
	}
}

func TestAliases(t *testing.T) {
	t.Parallel()
	a := store.Alias{Name: "echo", ID: "@local/d/echo/echo", Bundle: "d's echo bundle"}
	refused := map[string]string{"both": "two give it"}
	known := store.NewAliases([]store.Alias{a}, refused)
	delete(refused, "both")
	if got, ok, err := known.Find("echo"); !ok || err != nil || got != a {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	if _, ok, err := known.Find("both"); ok || !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "two give it") {
		t.Errorf("%v, %v", ok, err)
	}
	if _, ok, err := known.Find("other"); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	known.Refused()["echo"] = "changed from outside"
	if _, ok, _ := known.Find("echo"); !ok {
		t.Error("what is handed out is shared")
	}
	if !fault.Is(a.Unpinned(), fault.Invalid) || !fault.Is(a.Unwritten(), fault.NotFound) {
		t.Error(a.Unpinned(), a.Unwritten())
	}
	var none *store.Aliases
	if _, ok, err := none.Find("echo"); ok || err != nil || none.Refused() != nil || none.Near("echo") != nil {
		t.Error("nobody's aliases name something")
	}
}
