package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"agentenv/cli"
	"agentenv/config"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/store/document"
)

const (
	// lowDisk is how much room a state folder should have at least.
	lowDisk = 2 << 30
	// lookLimit bounds one look at something outside.
	lookLimit = 10 * time.Second
)

// checks returns what `doctor` looks at, in order.
func checks(c *config.Config, s *cli.Services, machine *engine.Lazy) []cli.Check {
	out := []cli.Check{
		{Name: "configuration", Look: func(context.Context) cli.Finding { return lookAtConfig(c) }},
		{Name: "state folder", Look: func(context.Context) cli.Finding { return lookAtState(s.StateRoot) }},
		{Name: "stores", Look: func(ctx context.Context) cli.Finding { return lookAtStores(ctx, c, s) }},
		{Name: "disk", Look: func(context.Context) cli.Finding { return lookAtDisk(s.StateRoot) }},
		{Name: "container engine", Look: func(ctx context.Context) cli.Finding { return lookAtEngine(ctx, machine) }},
		{Name: "local registry", Look: lookAtRegistry},
	}
	for _, name := range s.Sandboxes.Known() {
		p, err := s.Sandboxes.Provider(name)
		if err != nil {
			continue
		}
		out = append(out, cli.Check{Name: "provider " + name, Look: func(ctx context.Context) cli.Finding {
			ctx, cancel := context.WithTimeout(ctx, lookLimit)
			defer cancel()
			f := cli.Finding{Lacks: p.Check(ctx), Detail: "ready"}
			if len(f.Lacks) > 0 {
				f.Detail = "not ready for everything"
			}
			return f
		}})
	}
	return out
}

func lookAtConfig(c *config.Config) cli.Finding {
	f := cli.Finding{Detail: "no config file, built-in defaults", Needed: true}
	if p := c.Path(); p != "" {
		f.Detail = p
	}
	if err := c.Err(); err != nil {
		f.Detail = "cannot be used"
		f.Lacks = []sandbox.Lack{{What: err.Error(), Remedy: "mend the file, or point AGENT_ENV_CONFIG at another; `agent-env config show` explains"}}
	}
	return f
}

// lookAtState reports whether the state folder can be written, without making it.
func lookAtState(root string) cli.Finding {
	f := cli.Finding{Detail: root, Needed: true}
	if err := unwritable(root); err != nil {
		f.Lacks = []sandbox.Lack{{What: err.Error(), Remedy: "give yourself write permission, free the disk, or set XDG_STATE_HOME to another folder"}}
		return f
	}
	if existing(root) != root {
		f.Detail += " (made by the first run)"
	}
	return f
}

// unwritable says why nothing can be made in a folder, or in the nearest one above it that is there; nil when something can.
func unwritable(folder string) error {
	dir := existing(folder)
	probe, err := os.CreateTemp(dir, ".agentenv-check-*")
	if err != nil {
		return fault.Wrap(fault.KindOf(err), fault.Reason(err), "%s cannot be written", dir)
	}
	probe.Close()
	return os.Remove(probe.Name())
}

// lookAtStores reads the document store and the sandbox ledger, where they exist, and asks whether objects can be stored.
func lookAtStores(ctx context.Context, c *config.Config, s *cli.Services) cli.Finding {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	f := cli.Finding{Detail: "documents and the sandbox ledger can be read, objects can be written", Needed: true}
	_, err := s.Documents.Count(ctx, "task_instances", document.Filter{})
	_, lerr := s.Sandboxes.Of(ctx, "")
	for _, err := range []error{err, lerr} {
		if err != nil {
			f.Lacks = append(f.Lacks, sandbox.Lack{What: err.Error(), Remedy: "if the file is damaged, move it and the -wal and -shm files beside it away, or put a backup in its place"})
		}
	}
	folders := []string{objectFolder(c)}
	if choice, err := c.Seam("object"); err == nil && choice.Config.Str("root") != "" {
		folders = append(folders, choice.Config.Str("root"))
	}
	for _, dir := range folders {
		if err := unwritable(dir); err != nil {
			f.Lacks = append(f.Lacks, sandbox.Lack{What: "objects: " + err.Error(), Remedy: "make it a folder in which you have write permission, or set XDG_STATE_HOME to another folder"})
		}
	}
	if len(f.Lacks) > 0 {
		f.Detail = "cannot be used"
	}
	return f
}

// existing returns p, or else the nearest thing above it that is there.
func existing(p string) string {
	for {
		if _, err := os.Stat(p); err == nil {
			return p
		}
		up := filepath.Dir(p)
		if up == p {
			return p
		}
		p = up
	}
}

func lookAtDisk(root string) cli.Finding {
	free, err := freeBytes(existing(root))
	if err != nil {
		return cli.Finding{Detail: "free room cannot be told: " + err.Error()}
	}
	f := cli.Finding{Detail: fmt.Sprintf("%.1f GiB free beside the state folder", float64(free)/(1<<30))}
	if free < lowDisk {
		f.Lacks = []sandbox.Lack{{What: "less than 2 GiB are free", Remedy: "free some room, or set XDG_STATE_HOME to a folder on another disk"}}
	}
	return f
}

func lookAtEngine(ctx context.Context, machine *engine.Lazy) cli.Finding {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	e, err := machine.Get(ctx)
	if err != nil {
		return cli.Finding{Detail: "none", Lacks: []sandbox.Lack{{What: err.Error(), Remedy: "install and start Docker for container-mode tasks; vm-mode tasks on local need none"}}}
	}
	return cli.Finding{Detail: fmt.Sprintf("%s (%s)", e.Host(), e.From())}
}

// lookAtRegistry looks for the registry that images are pushed to when nothing else is configured.
func lookAtRegistry(ctx context.Context) cli.Finding {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:5000/v2/", nil)
	if err == nil {
		var res *http.Response
		if res, err = http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			return cli.Finding{Detail: "localhost:5000 answers"}
		}
	}
	return cli.Finding{Detail: "none at localhost:5000; it is started when an image is pushed"}
}
