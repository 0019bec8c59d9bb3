package main

import (
	"context"
	"debug/elf"
	"io"
	"log/slog"
	"os"
	"runtime"

	"agentenv/bundle"
	"agentenv/cli"
	"agentenv/examples"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
	"agentenv/protocol/a2a/modelagent"
	"agentenv/protocol/a2a/proxy"
)

// shipped are the agents in the program.
func shipped() []cli.ShippedAgent {
	return []cli.ShippedAgent{
		{Name: "echo", Summary: "answers what it is told", Serve: serve(func(*slog.Logger) (a2a.Agent, error) { return echo.Agent(), nil })},
		{Name: "model", Summary: "answers with a model and its tools", Serve: serve(func(log *slog.Logger) (a2a.Agent, error) {
			o := modelagent.FromEnv(os.Getenv)
			o.Log = log
			return modelagent.Agent(o)
		})},
		{Name: "proxy", Summary: "passes each message to a driver outside", Serve: serve(func(log *slog.Logger) (a2a.Agent, error) {
			return proxy.Agent(proxy.Options{Log: log}), nil
		})},
	}
}

func serve(agent func(*slog.Logger) (a2a.Agent, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		settings, err := a2a.FromEnv(os.Getenv)
		if err != nil {
			return err
		}
		settings.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
		a, err := agent(settings.Log)
		if err != nil {
			return err
		}
		return a2a.Main(ctx, a, settings)
	}
}

// programFiles are the files of shipped bundles that are this program itself: the images of its agents hold it.
func programFiles() map[string]func() (io.ReadCloser, error) {
	files := map[string]func() (io.ReadCloser, error){}
	for _, name := range []string{"echo", "model"} {
		files[name+"/agents/"+name+"/agent-env"] = openProgram
	}
	return files
}

// linuxBinary names a build of this program for Linux, for machines that run another system, or a build that cannot run by itself.
const linuxBinary = "AGENT_ENV_LINUX_BINARY"

// openProgram opens a build of this program that runs in an empty Linux container.
func openProgram() (io.ReadCloser, error) {
	name := os.Getenv(linuxBinary)
	if name == "" {
		if runtime.GOOS != "linux" {
			return nil, fault.New(fault.Unavailable, "the image of this bundle holds agent-env for Linux, and this one is for %s: build it with GOOS=linux CGO_ENABLED=0 go build ./cmd/agent-env and name the file in %s", runtime.GOOS, linuxBinary)
		}
		var err error
		if name, err = os.Executable(); err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "this program cannot find its own file")
		}
	}
	f, err := elf.Open(name)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%s is no program for Linux", name)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fault.New(fault.Unavailable, "%s needs the libraries of this system, which are not in the image of this bundle: build agent-env with `make build` (CGO_ENABLED=0), and run that or name it in %s", name, linuxBinary)
		}
	}
	return os.Open(name)
}

// catalog returns the bundles in the program.
func catalog() (*bundle.Catalog, error) {
	c, err := bundle.NewCatalog(distribution, programVersion(), examples.FS)
	if err != nil {
		return nil, err
	}
	return c.With(programFiles()), nil
}
