package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox/engine"
)

func TestOpenWithoutEngine(t *testing.T) {
	home := t.TempDir()
	sum := sha256.Sum256([]byte("far"))
	meta := filepath.Join(home, ".docker/contexts/meta", hex.EncodeToString(sum[:]), "meta.json")
	os.MkdirAll(filepath.Dir(meta), 0o755)
	os.WriteFile(meta, []byte(`{"Name":"far","Endpoints":{"docker":{"Host":"unix:///far/docker.sock"}}}`), 0o644)
	for _, c := range []struct {
		name, says, config string
		env                map[string]string
		kind               fault.Kind
	}{
		{name: "DOCKER_HOST", env: map[string]string{"DOCKER_HOST": "unix:///nowhere.sock"}, kind: fault.Unavailable, says: "DOCKER_HOST"},
		{name: "context", env: map[string]string{"DOCKER_CONTEXT": "far"}, kind: fault.Unavailable, says: "/far/docker.sock"},
		{name: "current context", config: `{"currentContext":"far"}`, kind: fault.Unavailable, says: "/far/docker.sock"},
		{name: "unknown context", env: map[string]string{"DOCKER_CONTEXT": "nope"}, kind: fault.Invalid, says: "docker context ls"},
		{name: "broken configuration", config: `{`, env: map[string]string{"DOCKER_HOST": "unix:///x"}, kind: fault.Invalid, says: "repair"},
		{name: "no host", env: map[string]string{"DOCKER_HOST": "bad"}, kind: fault.Invalid, says: "bad"},
	} {
		t.Run(c.name, func(t *testing.T) {
			os.WriteFile(filepath.Join(home, ".docker/config.json"), []byte("{}"), 0o644)
			if c.config != "" {
				os.WriteFile(filepath.Join(home, ".docker/config.json"), []byte(c.config), 0o644)
			}
			_, err := engine.Open(t.Context(), engine.Options{Home: home, Getenv: func(k string) string { return c.env[k] }})
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q of kind %s", err, fault.KindOf(err))
			}
		})
	}
}
