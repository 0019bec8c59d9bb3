// Command standin takes the place of a Docker Engine in tests of what is around one. It answers as far as whether it is there:
//
//	standin serve              answers GET /_ping on port 2375
//	standin deaf               answers nobody
//	standin ends               ends at once, with a complaint
//	standin --host tcp://A version
//	                           asks the engine at A, as the docker command does
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch strings.Join(args[:1], "") {
	case "serve":
		http.HandleFunc("GET /_ping", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "OK") })
		s := http.Server{Addr: ":2375", ReadHeaderTimeout: time.Minute}
		return s.ListenAndServe()
	case "deaf":
		fmt.Println("I hear nobody")
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
		return nil
	case "--host":
		r, err := http.Get(strings.Replace(args[1], "tcp://", "http://", 1) + "/_ping")
		if err != nil {
			return fmt.Errorf("cannot connect to the engine: %w", err)
		}
		defer r.Body.Close()
		_, err = io.Copy(os.Stdout, r.Body)
		return err
	}
	return fmt.Errorf("no subordinate ids for this user")
}
