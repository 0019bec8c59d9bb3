package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"agentenv/fault"
	"agentenv/task"
)

func (a *App) runsLogs() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{Use: "logs INSTANCE", Short: "Print the log of a run", Args: cobra.ExactArgs(1),
		Long: "Prints what a run of this state folder logged, whoever runs it. Logs are kept for a time; see docs/state.md.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, func(ctx context.Context, s *Services) error { return a.printLog(ctx, s, args[0], follow) })
		}}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing until the run ends")
	return cmd
}

func (a *App) printLog(ctx context.Context, s *Services, id string, follow bool) error {
	in, err := instance(ctx, s, id)
	if err != nil {
		return err
	}
	id = in.ID
	f, err := os.Open(logFile(s.LogDir, in.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "there is no log of %s here: another program ran it, or it was removed by its age", id)
	}
	if err != nil {
		return fault.Wrap(fault.KindOf(err), err, "the log of %s cannot be read", id)
	}
	defer f.Close()
	print := func(*task.Instance) error {
		if _, err := io.Copy(a.Stdout, f); err != nil {
			return fault.Wrap(fault.KindOf(err), err, "print the log of %s", id)
		}
		return nil
	}
	if !follow {
		return print(in)
	}
	return whileRunning(ctx, s, in, print)
}
