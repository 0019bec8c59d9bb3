// Package imagebuild builds images through the BuildKit that is part of a Docker Engine, so that no client plugin is needed, and takes
// finished ones out of the engine.
package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/docker/cli/cli/config/configfile"
	bkclient "github.com/moby/buildkit/client"
	"github.com/moby/buildkit/session"
	"github.com/moby/buildkit/session/auth/authprovider"
	"github.com/tonistiigi/fsutil"
	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/errgroup"

	"agentenv/fault"
	"agentenv/telemetry"
)

// SourcesLabel marks an image as built from sources: its value is their digest. Readers know such images by it.
const SourcesLabel = "dev.agentenv.sources"

// keptLines is how much of a failed build's output its error carries.
const keptLines = 40

// Dialer opens the engine's BuildKit connections; the client of a Docker Engine has this method.
type Dialer interface {
	DialHijack(ctx context.Context, url, proto string, meta map[string][]string) (net.Conn, error)
}

// Request says what to build.
type Request struct {
	Context    string   // folder that is the build context
	Dockerfile string   // slash path of the Dockerfile in it
	Names      []string // name:tag the image gets
	Labels     map[string]string
	Platform   string                 // "linux/amd64"; "" = the engine's own
	Logins     *configfile.ConfigFile // the user's registry logins; nil = none
	Progress   func(line string)      // one line for each step of the build that starts or fails; may be nil
}

// Build builds an image on the engine and gives it its names. A second build of the same sources is quick, since the engine
// caches steps. A failed build is an Invalid error whose text is the failing step and the last lines of its output; an engine
// that cannot build is Unavailable.
func Build(ctx context.Context, engine Dialer, req Request) (err error) {
	ctx, span := telemetry.Start(ctx, "image build", attribute.StringSlice("agentenv.images", req.Names))
	defer func() { span.End(err) }()
	c, err := bkclient.New(ctx, "",
		bkclient.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return engine.DialHijack(ctx, "/grpc", "h2c", nil)
		}),
		bkclient.WithSessionDialer(func(ctx context.Context, proto string, meta map[string][]string) (net.Conn, error) {
			return engine.DialHijack(ctx, "/session", proto, meta)
		}))
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the engine's BuildKit cannot be reached")
	}
	defer c.Close()
	folder, err := fsutil.NewFS(req.Context)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "build context %s", req.Context)
	}
	attrs := map[string]string{"filename": req.Dockerfile}
	if req.Platform != "" {
		attrs["platform"] = req.Platform
	}
	for k, v := range req.Labels {
		attrs["label:"+k] = v
	}
	opt := bkclient.SolveOpt{
		Frontend:      "dockerfile.v0",
		FrontendAttrs: attrs,
		LocalMounts:   map[string]fsutil.FS{"context": folder, "dockerfile": folder},
		Exports:       []bkclient.ExportEntry{{Type: "moby", Attrs: map[string]string{"name": strings.Join(req.Names, ",")}}},
	}
	if req.Logins != nil {
		opt.Session = []session.Attachable{authprovider.NewDockerAuthProvider(authprovider.DockerAuthProviderConfig{
			AuthConfigProvider: authprovider.LoadAuthConfig(req.Logins)})}
	}
	out := &output{progress: req.Progress, names: map[string]bool{}}
	status := make(chan *bkclient.SolveStatus)
	var g errgroup.Group
	g.Go(func() error { out.follow(status); return nil })
	_, err = c.Solve(ctx, nil, opt, status)
	_ = g.Wait()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return out.failed(req.Names, err)
}

// output follows a build's steps and keeps the end of what they print.
type output struct {
	progress func(string)
	names    map[string]bool
	failure  string
	lines    []string
	open     string // output after the last line's end
}

func (o *output) follow(status <-chan *bkclient.SolveStatus) {
	for s := range status {
		for _, v := range s.Vertexes {
			if v.Started != nil && !o.names[v.Name] {
				o.names[v.Name] = true
				o.say(v.Name)
			}
			if v.Error != "" && o.failure == "" && !strings.Contains(v.Error, context.Canceled.Error()) {
				o.failure = v.Name
			}
		}
		for _, l := range s.Logs {
			// Output comes in pieces that need not end where lines do.
			text := o.open + string(l.Data)
			end := strings.LastIndexByte(text, '\n') + 1
			o.open = text[end:]
			o.keep(strings.Split(text[:end], "\n"))
		}
	}
	o.keep([]string{o.open})
}

// keep takes whole lines; only the last ones stay.
func (o *output) keep(lines []string) {
	for _, line := range lines {
		if line = strings.TrimRight(line, "\r"); line != "" {
			o.lines = append(o.lines, line)
		}
	}
	if n := len(o.lines) - keptLines; n > 0 {
		o.lines = slices.Delete(o.lines, 0, n)
	}
}

func (o *output) say(line string) {
	if o.progress != nil {
		o.progress(line)
	}
}

func (o *output) failed(names []string, err error) error {
	text := err.Error()
	var b strings.Builder
	fmt.Fprintf(&b, "building %s failed", strings.Join(names, ", "))
	if o.failure != "" {
		fmt.Fprintf(&b, " at %s", o.failure)
	}
	fmt.Fprintf(&b, ": %s", lastMeaningful(text))
	for _, l := range o.lines {
		b.WriteString("\n  " + l)
	}
	kind := fault.Invalid
	if errors.Is(err, net.ErrClosed) || strings.Contains(text, "Unavailable") || strings.Contains(text, "connection refused") {
		kind = fault.Unavailable
	}
	return &fault.Error{Kind: kind, Class: "RuntimeError", Msg: b.String()}
}

// lastMeaningful drops the wrapping that the client puts around a step's own error.
func lastMeaningful(text string) string {
	for _, prefix := range []string{"failed to solve: ", "rpc error: code = Unknown desc = ", "rpc error: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}
