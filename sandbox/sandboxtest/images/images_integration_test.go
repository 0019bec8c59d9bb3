//go:build integration

package images_test

import (
	"context"
	"testing"

	"agentenv/examples"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
	"agentenv/sandbox/sandboxtest/ownengine"
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

// An engine without the public image gets one, and keeps the one it has.
func TestPythonSlimIsMadeOnce(t *testing.T) {
	own := ownengine.Start(t)
	e, err := engine.Open(t.Context(), own.Options())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var ids []string
	for range 2 {
		ref, err := images.PythonSlim(t.Context(), e)
		if err != nil || ref != examples.BaseImage {
			t.Fatalf("%q, %v", ref, err)
		}
		i, err := e.Image(t.Context(), ref)
		if err != nil || i.User != "root" || len(i.Cmd) != 1 || i.Cmd[0] != "python3" {
			t.Fatalf("%+v, %v", i, err)
		}
		ids = append(ids, i.ID)
	}
	if ids[0] != ids[1] {
		t.Errorf("it was made twice: %v", ids)
	}
	if left, err := e.List(t.Context()); len(left) > 0 || err != nil {
		t.Errorf("left behind: %+v, %v", left, err)
	}
}
