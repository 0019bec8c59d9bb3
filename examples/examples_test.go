package examples_test

import (
	"bufio"
	"io/fs"
	"strings"
	"testing"

	"agentenv/bundle"
	"agentenv/examples"
	"agentenv/steps/agents"
	"agentenv/steps/code"
	"agentenv/steps/files"
	"agentenv/steps/pending"
	"agentenv/steps/sandboxes"
	"agentenv/steps/verify"
	"agentenv/task"
)

func registry(t *testing.T) *task.Registry {
	t.Helper()
	var types []*task.StepType
	types = append(types, files.Types(files.Deps{})...)
	types = append(types, code.Types(code.Deps{})...)
	types = append(types, sandboxes.Types(sandboxes.Deps{})...)
	types = append(types, verify.Types(verify.Deps{})...)
	types = append(types, agents.Types(agents.Deps{})...)
	types = append(types, pending.Types()...)
	r, err := task.NewRegistry(types...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryBundleIsSound(t *testing.T) {
	c, err := bundle.NewCatalog(examples.Distribution, "test", examples.FS)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Names(), " "); got != "container-files echo hello model" {
		t.Errorf("the shipped bundles are %s", got)
	}
	for _, name := range c.Names() {
		t.Run(name, func(t *testing.T) {
			b, release, err := c.Open(name, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			if err := bundle.Check(t.Context(), registry(t), b); err != nil {
				t.Error(err)
			}
			if b.Description == "" || len(b.Of(bundle.StoreTask)) != 1 || len(b.Ignored) > 0 {
				t.Errorf("description %q, %d tasks, ignored %v", b.Description, len(b.Of(bundle.StoreTask)), b.Ignored)
			}
			home := t.TempDir()
			made, err := c.New(home+"/copy", name, home)
			if err != nil {
				t.Fatal(err)
			}
			own, err := bundle.Parse(home+"/copy", home)
			if err == nil {
				err = bundle.Check(t.Context(), registry(t), own)
			}
			if err != nil {
				t.Errorf("a bundle made from it (%v): %v", made, err)
			}
		})
	}
}

func TestBaseImageIsTheOneOfTheDockerfiles(t *testing.T) {
	found := 0
	err := fs.WalkDir(examples.FS, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "Dockerfile" {
			return err
		}
		f, err := examples.FS.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if from, ok := strings.CutPrefix(lines.Text(), "FROM "); ok {
				found++
				if from != examples.BaseImage && from != "scratch" {
					t.Errorf("%s builds on %s, not on %s", p, from, examples.BaseImage)
				}
			}
		}
		return lines.Err()
	})
	if err != nil || found == 0 {
		t.Errorf("%d Dockerfiles, %v", found, err)
	}
}
