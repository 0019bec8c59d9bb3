package examples_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"agentenv/artifact"
	"agentenv/bundle"
	"agentenv/examples"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/steps/code"
	"agentenv/steps/files"
	"agentenv/steps/sandboxes"
	"agentenv/steps/verify"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
	"agentenv/store/object/localfs"
	"agentenv/task"
)

// ends ends what a context records.
type ends struct{ m *sandbox.Manager }

func (e ends) Teardown(ctx context.Context, _ string, c *doc.Object) task.TeardownReport {
	var out task.TeardownReport
	for _, r := range task.Recorded(c) {
		s := task.SandboxReport{ID: r.ID, Provider: r.Type}
		if err := e.m.Terminate(ctx, sandbox.Record{Name: r.Name, ID: r.ID, Type: r.Type, Mode: sandbox.VM}); err != nil {
			s.Why = err.Error()
			out.Left = append(out.Left, s)
		} else {
			out.Ended = append(out.Ended, s)
		}
	}
	return out
}

func (ends) Alive(context.Context, task.Sandbox) (bool, error) { return true, nil }

func (ends) Adopt(context.Context, string) error { return nil }

func (ends) Discard(context.Context, string, []string) error { return nil }

func (ends) Describe(context.Context, string, *doc.Object) []task.KeptSandbox { return nil }

// TestHelloPasses runs the bundle with the real steps, stores and provider, and with another default provider than its own.
func TestHelloPasses(t *testing.T) {
	state := t.TempDir()
	db := func(name string, check func(string) error) document.Store {
		s, err := sqlite.New(sqlite.Options{Path: filepath.Join(state, "document_store", name), CheckID: check})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	docs := document.NewRouter(db("documents.db", nil), db("local.db", store.CheckLocalID))
	defer docs.Close()
	objects, err := localfs.New(filepath.Join(state, "object_store"))
	if err != nil {
		t.Fatal(err)
	}
	artifacts, err := artifact.New(artifact.Options{Documents: docs, Objects: objects})
	if err != nil {
		t.Fatal(err)
	}
	host, err := local.New(local.Options{StateRoot: state, Root: filepath.Join(state, "sandboxes"), Engine: &engine.Lazy{}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{host}, Default: "elsewhere", Ledger: sandbox.OpenLedger(filepath.Join(state, "sandboxes.db"))})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var types []*task.StepType
	types = append(types, files.Types(files.Deps{Sandboxes: m, Artifacts: artifacts})...)
	types = append(types, code.Types(code.Deps{Sandboxes: m, Artifacts: artifacts})...)
	types = append(types, sandboxes.Types(sandboxes.Deps{Sandboxes: m})...)
	types = append(types, verify.Types(verify.Deps{Sandboxes: m})...)
	reg, err := task.NewRegistry(types...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := bundle.NewCatalog(examples.Distribution, "test", examples.FS)
	if err != nil {
		t.Fatal(err)
	}
	b, release, err := c.Open("hello", state)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	runner := bundle.NewRunner(bundle.Deps{Registry: reg, Documents: docs, Artifacts: artifacts, Providers: m, StateRoot: state})
	for range 2 {
		p, err := runner.Plan(t.Context(), b, bundle.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		lines := bundle.NewLines(&out, &out)
		if err := p.Materialize(t.Context(), lines.Say, lines.Note); err != nil {
			t.Fatal(err)
		}
		sum := p.Run(t.Context(), bundle.RunOptions{Runs: task.NewEngine(reg, docs, nil, nil), Teardown: ends{m}, Progress: lines})
		if sum.ExitCode() != 0 || !strings.Contains(sum.Text(), "tasks/hello.json v1: passed (hello: 1)") || sum.TeardownText() != "\nTore down 1 sandbox.\n" {
			t.Errorf("%s%s%s", out.String(), sum.Text(), sum.TeardownText())
		}
	}
	if left, _ := filepath.Glob(filepath.Join(state, "sandboxes", "*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
