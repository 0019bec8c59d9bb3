package main

import (
	"bytes"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"agentenv/cli"
)

var update = flag.Bool("update", false, "rewrite the generated pages")

// TestGeneratedPagesAreCurrent holds docs/steps.md and docs/commands.md to what the program says of itself.
func TestGeneratedPagesAreCurrent(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	p := &program{dir: t.TempDir()}
	s, err := p.open(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	app := &cli.App{Version: "devel", Env: os.Getenv, Config: p.load, Open: p.open}
	var steps, commands bytes.Buffer
	if err := cli.WriteSteps(&steps, s.Registry); err != nil {
		t.Fatal(err)
	}
	if err := app.WriteCommands(&commands); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]*bytes.Buffer{"steps.md": &steps, "commands.md": &commands} {
		file := filepath.Join("..", "..", "docs", name)
		if *update {
			if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(have, want.Bytes()) {
			t.Errorf("docs/%s is not what the program says (%v); run: go test ./cmd/agent-env -run GeneratedPages -update", name, err)
		}
	}
}
