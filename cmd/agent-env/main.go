// Command agent-env builds, deploys and runs agentic environments and the tasks that grade agents in them. This package wires
// the rooms together and does nothing else.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"golang.org/x/term"

	"agentenv/cli"
	"agentenv/telemetry"
)

// version is set by the build.
var version = ""

func main() {
	// A reader that goes away costs the progress lines, never the run: a write then fails instead of ending the process.
	signal.Ignore(syscall.SIGPIPE)
	if os.Getenv("GOGC") == "" {
		// What a run holds mostly lives as long as the run: collecting it less often costs little memory and saves processor time.
		debug.SetGCPercent(400)
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	p := &program{dir: dir}
	app := &cli.App{
		Version: programVersion(), Env: os.Getenv, Dir: dir,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		StdinTerminal: term.IsTerminal(int(os.Stdin.Fd())), StdoutTerminal: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("TERM") != "dumb",
		Config: p.load, Open: p.open, Shipped: shipped(),
		Traces: func(ctx context.Context, command, file string) (context.Context, func() error, error) {
			return telemetry.Open(ctx, telemetry.Options{Env: os.Getenv, File: file, Command: command, Version: programVersion()})
		},
	}
	os.Exit(app.Run(context.Background(), os.Args[1:]))
}

// programVersion is what the build set, else the module's version, else "devel".
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
