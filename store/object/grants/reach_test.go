package grants_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/store/object"
	"agentenv/store/object/grants"
	"agentenv/store/object/localfs"
)

func TestWhomGrantsReach(t *testing.T) {
	t.Parallel()
	places := map[string]grants.Place{"container": {Here: true}, "vm": {Here: true, HostAddress: "127.0.0.1"}, "far": {}}
	for _, c := range []struct {
		advertise, bind string
		reaches         string
	}{
		{"", "", "container"},
		{"", "127.0.0.1", "container vm"},
		{"", "0.0.0.0", "container vm"},
		{"", "10.1.2.3", "container"},
		{"localhost", "127.0.0.1", ""},
		{"LocalHost.", "127.0.0.1", ""},
		{"127.0.0.1", "127.0.0.1", ""},
		{"::1", "127.0.0.1", ""},
		{"vm.localhost", "127.0.0.1", "container vm"},
		{"192.168.7.1", "127.0.0.1", "container"},
	} {
		server, err := grants.New(grants.Options{Dir: t.TempDir(), Advertise: c.advertise, Bind: c.bind})
		must(t, err)
		issuer := server.Of("s", nil).Issuer(func(kind string) grants.Place { return places[kind] })
		var reached []string
		for _, kind := range []string{"", "unknown", "far", "container", "vm"} {
			if issuer.Reach(kind) {
				reached = append(reached, kind)
			}
		}
		if got := strings.Join(reached, " "); got != c.reaches {
			t.Errorf("%q on %q reaches %q, not %q", c.advertise, c.bind, got, c.reaches)
		}
		if issuer.Hint() != "" {
			t.Error("a hint before there is a server:", issuer.Hint())
		}
	}
}

// TestGrantsOfStores finds the grants by the URL, and reads by them; the server's address becomes known with the first grant.
func TestGrantsOfStores(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	other, err := localfs.New(filepath.Join(t.TempDir(), "other"))
	must(t, err)
	issuer := r.Issuer(func(string) grants.Place { return grants.Place{Here: true, HostAddress: "127.0.0.1"} })
	list := []object.Granting{{Store: other}, {Store: r.store, Grants: issuer}}
	elsewhere, err := other.URL("x")
	must(t, err)
	if object.GrantsFor(list, elsewhere) != nil || object.GrantsFor(list, "s3://x/y") != nil {
		t.Error("grants of a store that issues none")
	}
	g := object.GrantsFor(list, r.url(t, "a"))
	url, err := object.ReadableURL(t.Context(), g, r.url(t, "a"), "x", time.Hour)
	if err != nil || url != "" { // localhost is the sandbox itself
		t.Error(url, err)
	}
	if url, err = object.ReadableURL(t.Context(), nil, elsewhere, "x", time.Hour); err != nil || url != "" {
		t.Error(url, err)
	}
	put(t, r, "a", "hello")
	g = reached{g}
	if url, err = object.ReadableURL(t.Context(), g, r.url(t, "a"), "x", time.Second); err != nil {
		t.Fatal(err)
	}
	if status, _, text := r.do(t, "GET", url, nil); status != 200 || text != "hello" {
		t.Error(status, text)
	}
	if url, err = object.ReadableURL(t.Context(), g, r.url(t, "a"), "x", 2*grants.MaxLifetime); err != nil || url != "" {
		t.Error(url, err) // no such lifetime, and no signature instead
	}
	if _, err = object.ReadableURL(t.Context(), g, elsewhere, "x", time.Second); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	if hint := g.Hint(); !strings.Contains(hint, "https://localhost:") || !strings.Contains(hint, "grant_bind_host") || strings.Contains(hint, "v1.") {
		t.Error(hint)
	}
	if put, err := g.SignedPut(t.Context(), r.url(t, "a"), 0); err != nil || put != "" || g.MaxSingleUpload() != 0 {
		t.Error(put, err)
	}
}

type reached struct{ object.Grants }

func (reached) Reach(string) bool { return true }

func put(t *testing.T, r rig, key, content string) {
	t.Helper()
	_, err := r.store.Put(t.Context(), object.Item{Key: key, Size: int64(len(content)), Body: strings.NewReader(content)}, true)
	must(t, err)
}
