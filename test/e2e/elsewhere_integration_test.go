//go:build integration

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"agentenv/artifact"
	"agentenv/sandbox"
	dockerprovider "agentenv/sandbox/docker"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	stepcode "agentenv/steps/code"
	stepfiles "agentenv/steps/files"
	"agentenv/steps/sandboxes"
	stepverify "agentenv/steps/verify"
	"agentenv/store"
	storedoc "agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
	"agentenv/store/object/localfs"
	"agentenv/task"
	"agentenv/test/kit"
)

// elsewhereEnv makes the test binary a second process: it holds an errand as JSON.
const elsewhereEnv = "AGENTENV_E2E_ERRAND"

// errand is what the second process is told: where the stores are, whose record it goes by, and which steps to execute.
type errand struct {
	State, Instance, TaskFile string
	Skip                      int // steps that the first process executed
}

// elsewhere executes the later steps of a task against the sandbox that another process deployed, with nothing but its record,
// and writes the context as it then is to standard output.
func elsewhere(spec string) int {
	err := func() error {
		var e errand
		if err := json.Unmarshal([]byte(spec), &e); err != nil {
			return err
		}
		return e.execute(context.Background())
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (e errand) execute(ctx context.Context) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	configured, err := sqlite.New(sqlite.Options{Path: filepath.Join(e.State, "document_store", "documents.db")})
	if err != nil {
		return err
	}
	own, err := sqlite.New(sqlite.Options{Path: filepath.Join(e.State, "document_store", "local.db"), CheckID: store.CheckLocalID})
	if err != nil {
		return err
	}
	docs := document.NewRouter(configured, own)
	objects, err := localfs.New(filepath.Join(e.State, "object_store"))
	if err != nil {
		return err
	}
	artifacts, err := artifact.New(artifact.Options{Documents: docs, Objects: objects})
	if err != nil {
		return err
	}
	lazy := &engine.Lazy{}
	host, err := local.New(local.Options{StateRoot: e.State, Root: os.Getenv("AGENT_ENV_LOCAL_SANDBOX_DIR"), Engine: lazy, Log: log})
	if err != nil {
		return err
	}
	manager, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{host, dockerprovider.New(dockerprovider.Options{Engine: lazy})},
		Ledger: sandbox.OpenLedger(filepath.Join(e.State, "sandboxes.db")), Log: log})
	if err != nil {
		return err
	}
	for _, c := range []io.Closer{manager, lazy, objects, docs} {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	registry, err := task.NewRegistry(slices.Concat(
		sandboxes.Types(sandboxes.Deps{Sandboxes: manager}), stepfiles.Types(stepfiles.Deps{Sandboxes: manager, Artifacts: artifacts, HTTP: http.DefaultClient}),
		stepcode.Types(stepcode.Deps{Sandboxes: manager, Artifacts: artifacts}), stepverify.Types(stepverify.Deps{Sandboxes: manager}))...)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(e.TaskFile)
	if err != nil {
		return err
	}
	t, err := registry.ParseText("elsewhere", text, task.ParseOptions{Where: e.TaskFile})
	if err != nil {
		return err
	}
	in, err := task.NewInstances(docs).Get(ctx, e.Instance)
	if err != nil {
		return err
	}
	now := in.Context
	for _, s := range t.Steps[e.Skip:] {
		run := task.NewRun(s.ID, s.Type, now, log, nil)
		run.Instance, run.TaskID = in.ID, in.TaskID
		if err := s.Action.Execute(store.WithRunScope(ctx, in.TaskID), run); err != nil {
			return fmt.Errorf("step %s: %w", s.ID, err)
		}
		now = run.Context()
	}
	out, err := storedoc.Marshal(now)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}

// TestLaterStepsInAnotherProcess deploys in one process and does the rest in another.
func TestLaterStepsInAnotherProcess(t *testing.T) {
	image := debian(t)
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			const folder = "/secret/in"
			all := secretTask(image, folder)
			// What the deploying process publishes is loaded by the full id in the other one.
			for _, s := range all {
				for _, key := range []string{"artifact_id", "script_artifact_id"} {
					if id, ok := s[key].(string); ok {
						s[key] = "@local/~/files/" + id
					}
				}
			}
			first := steps{all[0], load("publish", "box", "odd", "/tmp/x"), code("publish-2", "box", "inspect", map[string]any{"folder": "/tmp/x"})}
			dir := k.bundle("files", first, secretFiles())
			text, err := json.Marshal(all)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(k.Dir, "task.json")
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			p := k.start("run", dir, "--keep", "--sandbox", provider)
			defer p.kill()
			p.waitFor("instance @local/")
			p.waitFor("Ctrl-C")
			id := strings.Fields(p.text()[strings.Index(p.text(), "instance @local/"):])[1]

			spec, err := json.Marshal(errand{State: k.State, Instance: id, TaskFile: file, Skip: 1})
			if err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Dir, cmd.Env = k.Home, append(k.Environ(), elsewhereEnv+"="+string(spec))
			r := kit.Finish(t, cmd)
			if r.Code != 0 {
				t.Fatal(r)
			}
			checkSecret(t, k, doc{map[string]any{"context": parse(t, r.Stdout).v}}, folder)
			p.signal(syscall.SIGINT)
			if code := p.wait(); code != 0 && code != 130 {
				t.Errorf("exit code %d\n%s", code, p.text())
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}
