// Agentenv-echo-agent serves the echo agent as the environment says: A2A_HOST, A2A_PORT, AGENTENV_A2A_TOKEN.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	settings, err := a2a.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	settings.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	return a2a.Main(ctx, echo.Agent(), settings)
}
