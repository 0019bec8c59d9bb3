//go:build integration

package engine_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/sandbox/engine"
)

const user, password = "reader", "geheim-73"

// private starts a registry that wants a login, with one image, and returns its address and the image's name.
func private(t *testing.T, arch string) (host, image string) {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(t.Output(), "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	host = strings.TrimPrefix(s.URL, "http://")
	image = host + "/agentenv-test/" + strings.ToLower(rand.Text()[:10]) + ":1"
	img, err := random.Image(2048, 1)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	conf = conf.DeepCopy()
	conf.OS, conf.Architecture = "linux", arch
	if img, err = mutate.ConfigFile(img, conf); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(image)
	if err == nil {
		err = remote.Write(ref, img, remote.WithAuth(&authn.Basic{Username: user, Password: password}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return host, image
}

// with opens the engine with this Docker configuration.
func with(t *testing.T, conf string) *engine.Engine {
	t.Helper()
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".docker"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".docker", "config.json"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Options{Home: home, Getenv: func(k string) string { return map[string]string{"DOCKER_HOST": os.Getenv("DOCKER_HOST")}[k] }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestPrivateRegistry(t *testing.T) {
	host, image := private(t, open(t).Arch())
	helper := filepath.Join(t.TempDir(), "docker-credential-agentenvtest")
	script := "#!/bin/sh\nread server\n[ \"$1 $server\" = 'get " + host + "' ] || { echo 'credentials not found in native keychain'; exit 1; }\n" +
		`echo '{"ServerURL":"` + host + `","Username":"` + user + `","Secret":"` + password + `"}'` + "\n"
	if err := os.WriteFile(helper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(helper)+":"+os.Getenv("PATH"))
	login := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	wrong := base64.StdEncoding.EncodeToString([]byte(user + ":" + password + "x"))
	absent := strings.TrimSuffix(image, ":1") + ":2"
	for name, c := range map[string]struct {
		conf, image string
		want        fault.Kind
		says        string
	}{
		"login":            {fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, login), image, "", ""},
		"helper":           {fmt.Sprintf(`{"credHelpers":{%q:"agentenvtest"}}`, host), image, "", ""},
		"store":            {`{"credsStore":"agentenvtest"}`, image, "", ""},
		"none":             {`{}`, image, fault.Denied, "docker login " + host},
		"wrong":            {fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, wrong), image, fault.Denied, "docker login " + host},
		"no such tag":      {fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, login), absent, fault.NotFound, "check its name and tag"},
		"helper is absent": {fmt.Sprintf(`{"credHelpers":{%q:"agentenvabsent"}}`, host), image, fault.Denied, "docker login " + host},
	} {
		t.Run(name, func(t *testing.T) {
			e := with(t, c.conf)
			i, err := e.Ensure(t.Context(), c.image, nil)
			if c.want == "" {
				if err != nil || i.ID == "" {
					t.Fatal(i, err)
				}
				if _, err := e.Client().ImageRemove(t.Context(), c.image, client.ImageRemoveOptions{}); err != nil {
					t.Error(err)
				}
				return
			}
			if !fault.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.image) || strings.ContainsAny(err.Error(), "\n") {
				t.Errorf("error %v (%s), want a %s one with %q", err, fault.KindOf(err), c.want, c.says)
			}
			if err != nil && (strings.Contains(err.Error(), password) || strings.Contains(err.Error(), login)) {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

// The engine is found through a context file alone, as `docker context use` leaves it.
func TestContextFile(t *testing.T) {
	home := t.TempDir()
	sum := sha256.Sum256([]byte("near"))
	meta := filepath.Join(home, ".docker", "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json")
	host := open(t).Host()
	for file, text := range map[string]string{meta: fmt.Sprintf(`{"Name":"near","Endpoints":{"docker":{"Host":%q}}}`, host),
		filepath.Join(home, ".docker", "config.json"): `{"currentContext":"near"}`} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, err := engine.Open(t.Context(), engine.Options{Home: home, Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.Host() != host || !strings.Contains(e.From(), "near") {
		t.Errorf("%s, %s", e.Host(), e.From())
	}
}
