// Package cli is the command line: commands, flags, output and progress. It holds no logic of its own; what a command does
// lives in the rooms below.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"agentenv/config"
	"agentenv/fault"
)

// Exit codes.
const (
	exitError = 1 // a domain error, a failed run or check, a refused change
	exitUsage = 2 // a command line that is no command

	exitSignal = 128 // and the number of the signal that ended it
)

// App is what the program hands to its commands. Nothing in it is opened before a command needs it.
type App struct {
	Version        string
	Env            func(string) string // the environment
	Dir            string              // the working folder
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	StdinTerminal  bool
	StdoutTerminal bool
	// Open wires stores, providers and the engine from the configuration; it opens none of them. Commands close what it returns.
	Open func(ctx context.Context, log *slog.Logger) (*Services, error)
	// Config reads the configuration; a broken file shows in what is read of it.
	Config func() *config.Config
	// Traces begins the trace of a command, and returns what ends it; file gets the spans as OTLP JSON ("" = none).
	Traces func(ctx context.Context, command, file string) (traced context.Context, end func() error, err error)
	// Shipped are the agents in the program.
	Shipped []ShippedAgent

	verbose bool
	trace   string
	untrace func() error // ends the trace of this command
}

// usageError is a command line that is no command: it is printed with the usage line and ends with exit code 2.
type usageError struct {
	cmd *cobra.Command
	err error
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return usageError{cmd, fault.New(fault.Invalid, format, args...)}
}

// exit is an error that only carries an exit code: everything there is to say was printed already.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Run executes a command line and returns the exit code. It writes errors to a.Stderr.
func (a *App) Run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	out := &output{w: a.Stdout}
	a.Stdout = out
	root.SetOut(out)
	root.SetErr(a.Stderr)
	a.untrace = func() error { return nil }
	cmd, err := root.ExecuteContextC(ctx)
	if lost := a.untrace(); lost != nil { // which costs the run nothing
		fmt.Fprintf(a.Stderr, "trace: %s\n", lost)
	}
	var code exit
	ended := errors.As(err, &code)
	if lost := out.failed(); lost != nil && (!ended || code < exitSignal) { // a terminal that is closed sends a signal as well
		err, ended = lost, false
	}
	switch {
	case err == nil:
		return 0
	case ended:
		return int(code)
	}
	var usage usageError
	if errors.As(err, &usage) || isUsage(err) {
		if usage.cmd != nil {
			cmd = usage.cmd
		}
		fmt.Fprintf(a.Stderr, "Usage: %s\nTry '%s --help' for help.\n\nError: %s\n", cmd.UseLine(), cmd.CommandPath(), firstLine(err.Error()))
		return exitUsage
	}
	if errors.Is(err, syscall.EPIPE) {
		return 0 // whoever read the output has read enough
	}
	fmt.Fprintf(a.Stderr, "Error: %s\n", err)
	if a.verbose {
		for e := errors.Unwrap(err); e != nil; e = errors.Unwrap(e) {
			fmt.Fprintf(a.Stderr, "  caused by: %s (%s)\n", e, fault.KindOf(e))
		}
	}
	return exitError
}

// isUsage recognises the errors that cobra itself makes of a command line; it gives them no type.
func isUsage(err error) bool {
	for _, start := range []string{"unknown command ", "unknown flag", "unknown shorthand", "required flag(s)", "accepts ", "requires at least ",
		"flag needs an argument", "invalid argument ", "bad flag syntax", "if any flags in the group", "at least one of the flags"} {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func (a *App) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "agent-env",
		Short:         "Build, deploy and run agentic environments and the tasks that grade agents in them",
		Version:       a.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          group,
		// Counts and versions are checked once for every command.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			for name, least := range map[string]int{"version": 1, "limit": 0, "concurrency": 1, "env-version": 1} {
				f := cmd.Flags().Lookup(name)
				if f == nil || !f.Changed || !strings.HasPrefix(f.Value.Type(), "int") {
					continue
				}
				n, err := strconv.Atoi(f.Value.String())
				if err == nil && n < least && strings.HasSuffix(name, "version") {
					return fault.New(fault.NotFound, "%s=%d not found: versions begin at 1", name, n)
				}
				if err == nil && n < least {
					return usagef(cmd, "--%s must be at least %d, not %d", f.Name, least, n)
				}
			}
			if a.Traces == nil {
				return nil
			}
			traced, end, err := a.Traces(cmd.Context(), cmd.CommandPath(), a.trace)
			if err == nil {
				a.untrace = end
				cmd.SetContext(traced)
			}
			return err
		},
	}
	root.SetVersionTemplate("agent-env {{.Version}}\n")
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log what is done, on stderr")
	root.PersistentFlags().StringVar(&a.trace, "trace", "", "write the trace of what is done to this file, as OTLP JSON")
	root.Flags().BoolP("help", "h", false, "show this help")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{cmd, err} })
	root.AddCommand(
		a.runCommand(), a.taskCommand(), a.evalCommand(), a.bundleCommand(), a.artifactCommand(), a.agentCommand(), a.stepsCommand(), a.runsCommand(), a.episodeCommand(), a.reviewCommand(), a.sandboxCommand(), a.doctorCommand(),
		a.configCommand(),
	)
	return root
}

// group is what a command that only holds others does when it is called alone: it shows what it holds and fails.
func group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "unknown command %q for %q", args[0], cmd.CommandPath())
	}
	cmd.SetOut(cmd.ErrOrStderr())
	_ = cmd.Help()
	return exit(exitUsage)
}

// newGroup returns a command that only holds others.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: group}
	g.AddCommand(commands...)
	return g
}

// log returns the logger of a command: debug lines on stderr with --verbose, warnings otherwise.
func (a *App) log() *slog.Logger {
	level := slog.LevelWarn
	if a.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: level}))
}

// with runs fn with the services open. A signal ends its context, so that fn can clean up, and the command with 128 plus its number.
func (a *App) with(cmd *cobra.Command, fn func(ctx context.Context, s *Services) error) (err error) {
	sig, stop := watchSignals()
	defer stop()
	s, err := a.Open(cmd.Context(), a.log())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	err = sig.during(cmd.Context(), func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, stop) }) // a second signal ends the process at once
		return fn(ctx, s)
	})
	if code := sig.code(); code != 0 && err != nil {
		fmt.Fprintln(a.Stderr, "Cancelled.")
		return exit(code)
	}
	return err
}
