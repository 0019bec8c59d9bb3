package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"agentenv/episode"
	"agentenv/fault"
)

func (a *App) episodeCommand() *cobra.Command {
	return newGroup("episode", "Tasks whose agents are played from outside", a.episodeServe())
}

func (a *App) episodeServe() *cobra.Command {
	f := episodeFlags{}
	cmd := &cobra.Command{Use: "serve", Short: "Let another program play the agents of a stored task, over HTTP on this machine", Args: cobra.NoArgs,
		Long: "Serves episodes of a stored task until a signal comes: a client starts them, answers the prompts in place of an agent and gets the scores. " +
			"It listens on this machine alone and prints its address, and the file with the token that every request must carry. A signal abandons the " +
			"episodes that go on and tears them down; a second one stops the teardown.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serveEpisodes(cmd, f) }}
	cmd.Flags().StringVar(&f.task, "task", "", "id of the task (required)")
	cmd.Flags().Int64Var(&f.version, "version", 0, "version (the latest when not given)")
	cmd.Flags().StringArrayVar(&f.agents, "agent", nil, "name of an agent that is played from outside; may be repeated (the only prompted one when not given)")
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:0", "address of this machine to listen on; port 0 is any free one")
	cmd.Flags().DurationVar(&f.turn, "turn-timeout", 0, "how long a turn may take, for every prompt in place of its timeout_seconds: 90s, 10m")
	_ = cmd.MarkFlagRequired("task")
	return cmd
}

type episodeFlags struct {
	task    string
	version int64
	agents  []string
	listen  string
	turn    time.Duration
}

// door is a server of episodes that was opened.
type door struct {
	*episode.Door
	server   *http.Server
	listener net.Listener
	serving  sync.WaitGroup
	token    *tokenFile
}

func (a *App) serveEpisodes(cmd *cobra.Command, f episodeFlags) (err error) {
	if cmd.Flags().Changed("turn-timeout") && f.turn < time.Second {
		return usagef(cmd, "--turn-timeout must be at least 1s, not %s", f.turn)
	}
	sig, stop := watchSignals()
	defer stop()
	s, err := a.Open(cmd.Context(), a.log())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var d *door
	failed := sig.during(cmd.Context(), func(ctx context.Context) (err error) {
		if d, err = a.openDoor(ctx, s, f); err != nil {
			return err
		}
		served := make(chan error, 1)
		d.serving.Go(func() { served <- d.server.Serve(d.listener) })
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return fault.Wrap(fault.Unavailable, err, "the server ended")
		}
	})
	if d != nil {
		reason := "the server of its episode ended"
		if sig.code() != 0 {
			reason = sig.reason()
			fmt.Fprintln(a.Stderr, "Stopping: the episodes that go on are abandoned and torn down (Ctrl-C again to stop now)")
		}
		halted, halt := context.WithCancel(context.WithoutCancel(cmd.Context()))
		defer halt()
		if second := sig.second(halt, func() { d.Close(halted, reason) }); second {
			fmt.Fprintln(a.Stderr, "The teardown was stopped; `agent-env sandbox prune` removes what is still up")
		}
		d.token.remove() // as long as the port is this server's
		d.shut(halted)
	}
	if code := sig.code(); code != 0 {
		return exit(code)
	}
	return failed
}

// shut ends the server, once those who wait for an answer have it.
func (d *door) shut(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if d.server.Shutdown(ctx) != nil {
		d.server.Close()
	}
	d.serving.Wait()
}

func (a *App) openDoor(ctx context.Context, s *Services, f episodeFlags) (*door, error) {
	t, err := s.Tasks.Get(ctx, f.task, f.version)
	if err != nil {
		return nil, err
	}
	plan, err := episode.New(s.Episodes, t, episode.Options{TrainerAgents: f.agents, TurnTimeout: f.turn})
	if err != nil {
		return nil, err
	}
	l, err := episode.Listen(ctx, f.listen)
	if err != nil {
		return nil, err
	}
	token := episode.NewToken()
	file, err := newTokenFile(filepath.Join(s.StateRoot, "episodes"), strconv.Itoa(l.Addr().(*net.TCPAddr).Port)+".token", token)
	if err != nil {
		l.Close()
		return nil, err
	}
	d := &door{Door: episode.NewDoor(plan, token), listener: l, token: file}
	d.server = &http.Server{Handler: d.Door, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	fmt.Fprintf(a.Stdout, "Serving episodes of task %s version=%d; played from outside: %s\nURL: http://%s\nToken file: %s\n", t.ID, t.Version, strings.Join(plan.TrainerAgents(), ", "), l.Addr(), file.path)
	return d, nil
}
