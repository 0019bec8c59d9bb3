//go:build integration

package objects_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"agentenv/agent"
	"agentenv/agent/objects"
	"agentenv/protocol/a2a"
	"agentenv/sandbox"
	"agentenv/sandbox/docker"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/store/object"
	"agentenv/store/object/grants"
)

// echoImage imports an image that holds the echo agent alone, for a user without a name.
func echoImage(t *testing.T, e *engine.Engine) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "echo")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", at, "agentenv/cmd/agentenv-echo-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := os.ReadFile(at)
	must(t, err)
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	must(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "echo", Mode: 0o755, Size: int64(len(program))}))
	_, err = tw.Write(program)
	must(t, err)
	must(t, tw.Close())
	tag := "agentenv-test/objects:" + strings.ToLower(rand.Text()[:10])
	resp, err := e.Client().ImageImport(t.Context(), client.ImageImportSource{Source: &b, SourceName: "-"}, tag,
		client.ImageImportOptions{Changes: []string{"USER 65532", `ENTRYPOINT ["/echo"]`, "ENV AGENTENV_STAGING_MAX_BYTES=0"}})
	must(t, err)
	defer resp.Close()
	_, err = io.Copy(io.Discard, resp)
	must(t, err)
	t.Cleanup(func() {
		if _, err := e.Client().ImageRemove(context.Background(), tag, client.ImageRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	return tag
}

// TestAgentsInContainers write their trajectories into the store of this machine by a grant, on an image that has nothing but the agent.
func TestAgentsInContainers(t *testing.T) {
	machine := &engine.Lazy{}
	t.Cleanup(func() { must(t, machine.Close()) })
	e, err := machine.Get(t.Context())
	must(t, err)
	image := echoImage(t, e)
	server, err := grants.New(grants.Options{Dir: authority, Bridge: func(ctx context.Context) (string, error) { return local.Bridge(ctx, e) }})
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	trust, err := server.Trust()
	must(t, err)
	bundle, err := os.ReadFile(filepath.Join(trust, "ca-bundle.pem"))
	must(t, err)
	host, err := local.New(local.Options{Root: t.TempDir(), StateRoot: t.TempDir(), Engine: machine})
	must(t, err)
	for _, p := range []sandbox.Provider{host, docker.New(docker.Options{Engine: machine})} {
		t.Run(p.Name(), func(t *testing.T) {
			r := newRig(t, nowhere, a2a.Settings{})
			issuer := server.Of(p.Name(), r.store).Issuer(func(string) grants.Place { return grants.Place{Here: true} })
			var said bytes.Buffer // that it had to go another way
			mover := objects.New(objects.Options{Client: r.client, Log: slog.New(slog.NewTextHandler(&said, nil)), Store: r.store, Grants: []object.Granting{{Store: r.store, Grants: issuer}}})
			t.Cleanup(mover.Close)
			id := p.NewID()
			const file = "/etc/agentenv/ca-bundle.pem"
			m, err := p.Create(t.Context(), id, sandbox.Spec{Name: "agent", Mode: sandbox.Container, Image: image, Port: 8000, ServesItsCommand: true,
				Files: map[string][]byte{file: bundle}, Env: map[string]string{"SSL_CERT_FILE": file}})
			must(t, err)
			t.Cleanup(func() { must(t, p.Terminate(context.Background(), id)) })
			r.e = agent.Endpoint{URL: m.Info().TunnelURLs["8000"], Sandbox: id, SandboxType: p.Name()}
			r.e.Card, err = r.client.AwaitCard(t.Context(), r.e, time.Minute)
			must(t, err)
			url, err := mover.FetchTrajectory(t.Context(), r.e, objects.Of{TaskID: r.say("hi", "c")}, r.url("t.json"))
			must(t, err)
			if text := r.get(url); !strings.Contains(text, `"output":"Echo: hi"`) {
				t.Error(text)
			}
			if origin, _ := server.Where(); !strings.HasPrefix(origin, "https://host.docker.internal:") || said.Len() > 0 {
				t.Error("the agent wrote nothing by a grant:", origin, said.String())
			}
			info, err := r.store.Stat(t.Context(), url)
			if err != nil || info.ContentType != "application/json" {
				t.Error(info, err)
			}
		})
	}
}
