package image_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/image"
)

func TestHosts(t *testing.T) {
	for in, want := range map[string]string{
		" LocalHost:5000 ": "localhost:5000", "index.docker.io": "docker.io", "registry-1.docker.io": "docker.io", "Ghcr.io": "ghcr.io",
		"": "", "  ": "", "https://x": "", "a/b": "",
	} {
		got, err := image.NormalizeHost(in)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"alpine": "docker.io", "alpine:3": "docker.io", "a/b": "docker.io", "localhost/a": "localhost", "LOCALHOST/a": "localhost",
		"localhost:5000/a": "localhost:5000", "ghcr.io/a/b:c": "ghcr.io", "host:1/a": "host:1", "": "", "https://x/y": "", "ghcr.io": "docker.io",
	} {
		if got := image.RefHost(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]bool{
		"localhost": true, "LOCALHOST:5000": true, "127.0.0.1": true, "127.9.9.9:1": true, "[::1]:5000": true, "::1": true, "[::1]": true,
		"0.0.0.0:80": true, "host.docker.internal": true, "ghcr.io": false, "localhost.example.com": false, "10.0.0.1": false, "": false,
	} {
		if image.IsLoopback(in) != want {
			t.Errorf("%q: %v", in, !want)
		}
	}
}

func TestParseRef(t *testing.T) {
	d := "sha256:" + strings.Repeat("a", 64)
	for in, want := range map[string]image.Reference{
		"alpine":                    {Name: "alpine", Host: "docker.io", Path: "library/alpine"},
		"docker.io/alpine:3":        {Name: "docker.io/alpine", Host: "docker.io", Path: "library/alpine", Tag: "3"},
		"a/b@" + d:                  {Name: "a/b", Host: "docker.io", Path: "a/b", Digest: d},
		"localhost:5000/x/y:1@" + d: {Name: "localhost:5000/x/y", Host: "localhost:5000", Path: "x/y", Tag: "1", Digest: d},
	} {
		if got, err := image.ParseRef(in); err != nil || got != want {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x@sha256:abc", "x@sha256:" + strings.Repeat("A", 64), "x@md5:" + strings.Repeat("a", 32), "https://x", "x:", "ghcr.io/", "ghcr.io/../x", "x@", "ghcr.io/a?b"} {
		if _, err := image.ParseRef(in); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"a", "localhost:5000/x:1", "x@sha256:" + strings.Repeat("0", 64), ":@/", "a//b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		r, err := image.ParseRef(ref)
		if err == nil && (r.Host == "" || r.Path == "" || strings.Contains(r.Path, "..")) {
			t.Errorf("%q: %+v", ref, r)
		}
	})
}

type secrets map[string]string

func (s secrets) Get(_ context.Context, name string) (string, bool, error) {
	v, ok := s[name]
	return v, ok, nil
}

func TestCredentials(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString([]byte("bob:p:w"))
	for _, c := range []struct {
		text, host, user, password string
	}{
		{`{"auths": {"https://Index.docker.io/v1/": {"auth": "` + b64 + `"}}}`, "docker.io", "bob", "p:w"},
		{`{"ghcr.io:443": {"username": "u", "password": "p"}, "credHelpers": {}}`, "ghcr.io:443", "u", "p"},
		{`{"auths": {"ghcr.io": {"username": "u", "password": "p"}}}`, "other.io", "", ""},
	} {
		a, err := (image.SecretCredentials{Secrets: secrets{"registry_auths": c.text}}).For(t.Context(), c.host)
		if err != nil || (a == nil) != (c.user == "") || a != nil && (a.Username != c.user || a.Password != c.password || a.Registry != c.host) {
			t.Errorf("%s: %v, %v", c.text, a, err)
		}
	}
	if a, err := (image.SecretCredentials{Secrets: secrets{}}).For(t.Context(), "x.io"); a != nil || err != nil {
		t.Error(a, err)
	}
	for _, text := range []string{`hunter2`, `{"auths": "hunter2"}`, `{"x.io": "hunter2"}`, `{"x.io": {"auth": "hunter2"}}`, `{"x.io": {"auth": "aHVudGVyMg=="}}`, `{"x.io": {"username": "hunter2"}}`} {
		_, err := (image.SecretCredentials{Secrets: secrets{"k": text}, Key: "k"}).For(t.Context(), "x.io")
		if fault.ClassOf(err) != "ConfigError" || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), `"k"`) || !strings.Contains(err.Error(), "x.io") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if s := fmt.Sprint(image.Auth{Registry: "r", Username: "u", Password: "hunter2"}); strings.Contains(s, "hunter2") {
		t.Error(s)
	}
}

func TestRegistryAndRouter(t *testing.T) {
	conf, err := image.NewRegistry("Ghcr.io", "/team/", image.SecretCredentials{Secrets: secrets{"registry_auths": `{"ghcr.io": {"username": "u", "password": "p"}}`}})
	if err != nil {
		t.Fatal(err)
	}
	base, _ := image.NewRegistry(image.LocalHost, "", nil)
	local, err := image.NewLocal(base, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := conf.Ref("a/b", "1"); got != "ghcr.io/team/a/b:1" {
		t.Error(got)
	}
	if a, err := conf.Auth(t.Context(), "ghcr.io/x"); err != nil || a == nil || a.Username != "u" {
		t.Error(a, err)
	}
	if a, err := conf.Auth(t.Context(), "other.io/x"); err != nil || a != nil {
		t.Error(a, err)
	}
	r := image.NewRouter(conf, local)
	if r.Ref("local/x-1", "1") != "localhost:5000/local/x-1:1" || r.Ref("x", "1") != "ghcr.io/team/x:1" || !r.Owns("localhost:5000/x") || r.Owns("docker.io/x") {
		t.Error("routing by repository and host")
	}
	run := store.WithRunScope(t.Context(), "@local/r")
	if err := r.EnsureRepository(run, "x"); fault.KindOf(err) != fault.Denied {
		t.Error(err)
	}
	if err := r.EnsureRepository(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	for repository, here := range map[string]bool{"x": false, "local/x-1": true} {
		if image.OnThisMachine(r, repository) != here || !image.OnThisMachine(local, repository) || image.OnThisMachine(base, repository) {
			t.Errorf("%s is kept elsewhere", repository)
		}
	}
	if image.NewRouter(local, local) != image.Store(local) {
		t.Error("one host needs no router")
	}
	if _, err := image.NewLocal(conf, nil); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
}

func TestLocalStartsItsRegistry(t *testing.T) {
	srv := httptest.NewUnstartedServer(registry.New())
	host := srv.Listener.Addr().String()
	base, _ := image.NewRegistry(host, "", nil)
	var started atomic.Int32
	l, err := image.NewLocal(base, func(_ context.Context, name string, port int) error {
		started.Add(1)
		if name != fmt.Sprintf("agentenv-registry-%d", port) || !strings.HasSuffix(host, fmt.Sprint(":", port)) {
			t.Error(name, port)
		}
		srv.Start()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	for range 2 {
		if err := l.EnsureRepository(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if started.Load() != 1 {
		t.Error(started.Load())
	}
	srv.Close()
	failing, _ := image.NewLocal(base, func(context.Context, string, int) error { return fault.New(fault.Unavailable, "no engine") })
	if err := failing.EnsureRepository(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "no engine") {
		t.Error(err)
	}
}

func TestPin(t *testing.T) {
	srv := httptest.NewServer(registry.New())
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	img, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(host + "/a/b:latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, img); err != nil {
		t.Fatal(err)
	}
	digest, _ := img.Digest()
	want := host + "/a/b:latest@" + digest.String()
	for _, ref := range []string{host + "/a/b", host + "/a/b:latest", want} {
		got, err := image.Pin(t.Context(), srv.Client(), ref, nil)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v", ref, got, err)
		}
		if !image.PinnedFrom(got, ref) {
			t.Errorf("%s is not known as pinned from %s", got, ref)
		}
	}
	if got, err := image.Pin(t.Context(), srv.Client(), host+"/a/b@"+digest.String(), nil); err != nil || got != host+"/a/b@"+digest.String() {
		t.Error(got, err)
	}
	other := "sha256:" + strings.Repeat("0", 64)
	if _, err := image.Pin(t.Context(), srv.Client(), host+"/a/b:latest@"+other, nil); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
	if _, err := image.Pin(t.Context(), srv.Client(), host+"/a/b:none", nil); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
	if image.PinnedFrom(want, host+"/a/c") || image.PinnedFrom(host+"/a/b", host+"/a/b") || image.PinnedFrom(want, host+"/a/b:2") {
		t.Error("foreign pins pass")
	}
	srv.Close()
	if _, err := image.Pin(t.Context(), http.DefaultClient, host+"/a/b", nil); fault.KindOf(err) != fault.Unavailable {
		t.Error(err)
	}
}

func TestPinWithTokensAndOddRegistries(t *testing.T) {
	const manifest = `{"schemaVersion": 2}`
	var answer atomic.Value
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	defer srv.Close()
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "u" || password != "p" || r.URL.Query().Get("service") != "svc" || r.URL.Query().Get("scope") != "pull" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, answer.Load())
	})
	mux.HandleFunc("/v2/", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "broken"):
			w.WriteHeader(http.StatusTeapot)
		case strings.Contains(r.URL.Path, "closed"):
			w.WriteHeader(http.StatusForbidden)
		case r.Header.Get("Authorization") != "Bearer tok":
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+srv.URL+`/token",service="svc",scope="pull"`)
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodGet:
			fmt.Fprint(w, manifest)
		}
	})
	host := strings.TrimPrefix(srv.URL, "http://")
	auth := &image.Auth{Username: "u", Password: "p"}
	for _, text := range []string{`{"token": "tok"}`, `{"access_token": "tok"}`} {
		answer.Store(text)
		got, err := image.Pin(t.Context(), srv.Client(), host+"/a", auth)
		if err != nil || !strings.HasPrefix(got, host+"/a:latest@sha256:") || len(got) != len(host)+len("/a:latest@sha256:")+64 {
			t.Error(got, err)
		}
	}
	answer.Store("<html>")
	if _, err := image.Pin(t.Context(), srv.Client(), host+"/a", auth); fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), host) || !strings.Contains(err.Error(), "token") {
		t.Error(err)
	}
	if _, err := image.Pin(t.Context(), srv.Client(), host+"/a", &image.Auth{Username: "u", Password: "hunter2"}); fault.KindOf(err) != fault.Denied || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	if _, err := image.Pin(t.Context(), srv.Client(), host+"/closed", nil); fault.KindOf(err) != fault.Denied {
		t.Error(err)
	}
	if _, err := image.Pin(t.Context(), srv.Client(), host+"/broken", nil); fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "418") {
		t.Error(err)
	}
}
