package sandboxes

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/store/doc"
	"agentenv/task"
)

// TestVMWithAnImage deploys this machine as a VM with an image and a boot mode, which mean nothing to it.
func TestVMWithAnImage(t *testing.T) {
	dir := t.TempDir()
	p, err := local.New(local.Options{Root: filepath.Join(dir, "boxes"), StateRoot: dir, Engine: &engine.Lazy{}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{p}, Ledger: sandbox.OpenLedger(filepath.Join(dir, "ledger.db"))})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	reg, err := task.NewRegistry(Types(Deps{Sandboxes: m})...)
	if err != nil {
		t.Fatal(err)
	}
	tk, err := reg.ParseText("t", []byte(`[{"id":"d","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","image":"debian:12","boot_mode":"uefi"}]`), task.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := tk.Steps[0]
	if s.Fields.Str("boot_mode") != "uefi" || s.Fields.Str("image") != "debian:12" {
		t.Errorf("stored %s", doc.Canonical(s.Fields))
	}
	r := task.NewRun("d", s.Type, nil, nil, nil)
	if err := s.Action.Execute(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	rec, err := r.Sandbox("box")
	if err != nil || rec.Mode != "vm" || rec.Type != "local" {
		t.Errorf("recorded %+v, %v", rec, err)
	}
	if err := m.Terminate(context.WithoutCancel(t.Context()), RecordOf(rec)); err != nil {
		t.Error(err)
	}
}

func TestImageWithNUL(t *testing.T) {
	_, err := specOf(doc.Of("sandbox_name", "box", "sandbox_mode", "vm", "image", "debian\x00"))
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "NUL") {
		t.Error(err)
	}
}
