// Package engine speaks to a Docker Engine: it finds the user's, pulls and inspects images, runs containers with the helper as
// process 1, and gives each container as a place.Place that needs nothing in the image.
package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/connhelper"
	"github.com/moby/moby/client"

	"agentenv/fault"
)

// Options say where to look for an engine. Zero values take the process's own environment and home.
type Options struct {
	Getenv func(string) string // nil = os.Getenv
	Home   string              // "" = the user's home folder
	Log    *slog.Logger        // nil = discard
}

// Engine is a connection to one Docker Engine. Safe for concurrent use.
type Engine struct {
	cli  *client.Client
	from string
	conf *configfile.ConfigFile
	log  *slog.Logger
	arch string
	os   string

	desktop bool

	helper helperState
}

// Open connects to the engine that the docker command would use: DOCKER_HOST (with DOCKER_TLS_VERIFY and DOCKER_CERT_PATH),
// else the context of DOCKER_CONTEXT or of the Docker configuration, else the first socket among the usual ones, rootless
// ones included. No engine that answers is an Unavailable error that says what to do; a context that is not there is Invalid.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Home == "" {
		o.Home, _ = os.UserHomeDir()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	dir := o.Getenv("DOCKER_CONFIG")
	if dir == "" {
		dir = filepath.Join(o.Home, ".docker")
	}
	conf, err := config.Load(dir)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the Docker configuration in %s cannot be read; repair or remove it", dir)
	}
	t, err := find(o, dir, conf.CurrentContext)
	if err != nil {
		return nil, err
	}
	opts := []client.Opt{client.WithHost(t.host), client.WithUserAgent("agent-env")}
	if t.tls != "" {
		opts = append(opts, client.WithTLSClientConfig(filepath.Join(t.tls, "ca.pem"), filepath.Join(t.tls, "cert.pem"), filepath.Join(t.tls, "key.pem")))
	}
	if strings.HasPrefix(t.host, "ssh://") {
		h, err := connhelper.GetConnectionHelper(t.host)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "the Docker host %s (%s)", t.host, t.from)
		}
		opts = []client.Opt{client.WithHost(h.Host), client.WithDialContext(h.Dialer), client.WithHTTPClient(&http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) { return h.Dialer(ctx, network, addr) },
		}})}
	}
	if v := o.Getenv("DOCKER_API_VERSION"); v != "" {
		opts = append(opts, client.WithAPIVersion(v))
	}
	cli, err := client.New(opts...)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the Docker host %s (%s)", t.host, t.from)
	}
	e := &Engine{cli: cli, from: t.from, conf: conf, log: o.Log}
	ping, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	v, err := cli.ServerVersion(ping, client.ServerVersionOptions{})
	if err != nil {
		cli.Close()
		if ctx.Err() != nil {
			return nil, fault.At(context.Cause(ctx), "ask the Docker Engine at %s", t.host)
		}
		if strings.Contains(err.Error(), "permission denied") {
			return nil, fault.Wrap(fault.Denied, oneLine(err), "the Docker Engine at %s (%s) may not be used by this user; join its group (usually docker) or use a rootless engine", t.host, t.from)
		}
		return nil, fault.Wrap(fault.Unavailable, oneLine(err), "no Docker Engine answers at %s (%s); start it, or point DOCKER_HOST or `docker context use` at one", t.host, t.from)
	}
	e.arch, e.os, e.desktop = v.Arch, v.Os, strings.HasPrefix(v.Platform.Name, "Docker Desktop")
	return e, nil
}

type target struct{ host, tls, from string }

func find(o Options, dir, current string) (target, error) {
	if h := o.Getenv("DOCKER_HOST"); h != "" {
		t := target{host: h, from: "from DOCKER_HOST"}
		if o.Getenv("DOCKER_TLS_VERIFY") != "" {
			if t.tls = o.Getenv("DOCKER_CERT_PATH"); t.tls == "" {
				t.tls = dir
			}
		}
		return t, nil
	}
	from := "the current context of " + filepath.Join(dir, "config.json")
	if n := o.Getenv("DOCKER_CONTEXT"); n != "" {
		current, from = n, "from DOCKER_CONTEXT"
	}
	if current != "" && current != "default" {
		return fromContext(dir, current, from)
	}
	for _, s := range []string{"/var/run/docker.sock", filepath.Join(o.Getenv("XDG_RUNTIME_DIR"), "docker.sock"),
		filepath.Join(o.Home, ".docker/run/docker.sock"), filepath.Join(o.Home, ".docker/desktop/docker.sock")} {
		if fi, err := os.Stat(s); err == nil && fi.Mode()&os.ModeSocket != 0 {
			return target{host: "unix://" + s, from: "the default socket"}, nil
		}
	}
	return target{}, fault.New(fault.Unavailable, "there is no Docker Engine on this machine (no socket at /var/run/docker.sock); install and start one, or point DOCKER_HOST at one")
}

const maxMeta = 1 << 20

func fromContext(dir, name, from string) (target, error) {
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	file := filepath.Join(dir, "contexts", "meta", id, "meta.json")
	b, err := readSmall(file, maxMeta)
	if err != nil {
		return target{}, fault.Wrap(fault.Invalid, err, "the Docker context %q (%s) does not exist; `docker context ls` lists those that do", name, from)
	}
	host, err := parseMeta(b)
	if err != nil {
		return target{}, fault.Wrap(fault.Invalid, err, "the Docker context %q (%s) is broken", name, file)
	}
	t := target{host: host, from: "context " + name + ", " + from}
	tls := filepath.Join(dir, "contexts", "tls", id, "docker")
	if _, err := os.Stat(tls); err == nil {
		t.tls = tls
	}
	return t, nil
}

func parseMeta(b []byte) (host string, err error) {
	var m struct {
		Endpoints map[string]struct{ Host string }
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return "", err
	}
	if h := m.Endpoints["docker"].Host; h != "" {
		return h, nil
	}
	return "", fault.New(fault.Invalid, "it names no docker endpoint")
}

func readSmall(file string, most int64) ([]byte, error) {
	fi, err := os.Stat(file)
	if err == nil && fi.Size() > most {
		err = fault.New(fault.Invalid, "%s is larger than %d bytes", file, most)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// Client returns the underlying client, for what this package does not do (image builds).
func (e *Engine) Client() *client.Client { return e.cli }

// Host returns the address of the engine, and From how it was found.
func (e *Engine) Host() string { return e.cli.DaemonHost() }

// From says in words how the engine was found.
func (e *Engine) From() string { return e.from }

// Arch returns the engine's architecture in Go's names ("amd64").
func (e *Engine) Arch() string { return e.arch }

// Close releases the connections; a second call is a no-op.
func (e *Engine) Close() error { return e.cli.Close() }

// Lazy opens an engine at its first use, so that what needs none never looks for one. A failed attempt is repeated at the
// next call. Safe for concurrent use.
type Lazy struct {
	Options Options
	mu      sync.Mutex
	e       *Engine
}

// Get returns the engine; see Open for the errors.
func (l *Lazy) Get(ctx context.Context) (*Engine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.e != nil {
		return l.e, nil
	}
	e, err := Open(ctx, l.Options)
	if err == nil {
		l.e = e
	}
	return e, err
}

// Close closes the engine if one was opened; a later Get opens a new one.
func (l *Lazy) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.e == nil {
		return nil
	}
	err := l.e.Close()
	l.e = nil
	return err
}
