// Command modelserver answers as a model would, by a script: for trying a task without a key. It listens on loopback.
//
//	go run ./test/modelserver [-listen 127.0.0.1:8088] [-key KEY] [script.json]
//
// Without a script it says what it was told. A script is {"turns": [{"when", "text", "think", "tools": [{"name", "arguments"}], "delay",
// "status", "cut"}]}.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"agentenv/test/modelserver/scripted"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8088", "the address to listen on")
	key := flag.String("key", "", "the key that requests must carry; none = any")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, *listen, *key, flag.Arg(0))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "modelserver:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, listen, key, file string) error {
	script := scripted.Echo()
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		if script, err = scripted.Parse(f); err != nil {
			return err
		}
	}
	s, err := scripted.New(script, key)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("a scripted model at http://%s/v1\n", l.Addr())
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		_ = h.Close()
	}()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-ended
	return nil
}
