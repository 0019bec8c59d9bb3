//go:build integration

package images_test

import (
	"context"
	"testing"

	"agentenv/examples"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
)

func TestPython(t *testing.T) {
	e, err := engine.Open(t.Context(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for name, ensure := range map[string]func(context.Context, *engine.Engine) (string, error){images.DebianTag: images.Debian, examples.BaseImage: images.PythonSlim} {
		ref, err := ensure(t.Context(), e)
		if err != nil || ref != name {
			t.Fatalf("%q, %v", ref, err)
		}
		c, err := e.Run(t.Context(), engine.RunSpec{Name: "agentenv-test-python-" + ref[len(ref)-8:], Image: ref})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Remove(context.Background(), c.ID())
		r, err := c.Exec(t.Context(), place.Cmd{Argv: []string{"python3", "-c", "import json, hashlib, sqlite3, os; print(json.dumps({'root': os.getuid() == 0}))"}})
		if want := map[bool]string{true: "{\"root\": true}\n", false: "{\"root\": false}\n"}[name == examples.BaseImage]; err != nil || string(r.Stdout) != want {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
}
