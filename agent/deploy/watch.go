package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/sandbox"
	"agentenv/store/doc"
)

const (
	// lookEvery is how often the container is looked at while its card is waited for, watchEvery while it works.
	lookEvery  = 250 * time.Millisecond
	watchEvery = 2 * time.Second
	fateLimit  = 3 * time.Second
	logLines   = 500
	logChars   = 500
	logLimit   = 20 * time.Second
)

// served is a container that tells about its command; those of the engines of this machine do.
type served interface {
	Running() bool
	Logs(ctx context.Context, lines int) (stdout, stderr []byte, err error)
}

// await waits for the card, and no longer than the container lives.
func (d *Deployer) await(ctx context.Context, m sandbox.Machine, e agent.Endpoint, hide func(string) string) (*card.Card, error) {
	waiting, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := watch(waiting, m, lookEvery); err != nil {
			stop(err)
		}
	}()
	found, err := d.o.Client.AwaitCard(waiting, e, readiness)
	gone := context.Cause(waiting)
	stop(nil)
	<-watched
	if err == nil {
		return found, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if gone != nil {
		err = fault.Wrap(fault.Unavailable, gone, "the agent did not come up")
	}
	return nil, withOutput(ctx, m, err, hide)
}

// withOutput adds the end of what the agent wrote to why it did not come.
func withOutput(ctx context.Context, m sandbox.Machine, err error, hide func(string) string) error {
	if text := logs(ctx, m); text != "" {
		return fault.New(fault.KindOf(err), "%v; its last output:\n%s", err, hide(text))
	}
	return err
}

// watch returns when the agent's container has ended, with an Unavailable error, or when ctx has, with nil.
func watch(ctx context.Context, m sandbox.Machine, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := ended(ctx, m); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// ended returns an error when the agent's container does not run any more: Unavailable for one that was taken away, Internal for one that ended
// by itself, which is the agent's own failure.
func ended(ctx context.Context, m sandbox.Machine) error {
	p, err := m.Container(ctx, "")
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.Unavailable, "the agent's container in %s is gone", m.Info().ID)
	}
	if c, ok := p.(served); ok && err == nil && !c.Running() {
		return fault.New(fault.Internal, "the agent's container in %s has ended", m.Info().ID)
	}
	return nil
}

// Fate returns what became of the container of a recorded agent that has just broken a connection: the error of Watch if the container ends
// within a moment, nil if it lives or nothing can be told.
func (d *Deployer) Fate(ctx context.Context, record *doc.Object) error {
	ctx, stop := context.WithTimeout(ctx, fateLimit)
	defer stop()
	m, err := d.own(ctx, record)
	if fault.Is(err, fault.NotFound) {
		return fault.Wrap(fault.Unavailable, err, "the agent %q is gone", record.Str("agent_name"))
	}
	if err != nil || m == nil {
		return nil //nolint:nilerr // nothing can be told
	}
	return watch(ctx, m, lookEvery)
}

// Watch returns an error once the container of a recorded agent has ended, so that nobody waits for an agent that is no more: Internal when it
// ended by itself, Unavailable when it was taken away.
// It returns nil when ctx ends, and at once for an agent that has no container of its own or of which nothing can be told.
func (d *Deployer) Watch(ctx context.Context, record *doc.Object) error {
	m, err := d.own(ctx, record)
	if fault.Is(err, fault.NotFound) {
		return fault.Wrap(fault.Unavailable, err, "the agent %q is gone", record.Str("agent_name"))
	}
	if err != nil || m == nil {
		return nil //nolint:nilerr // who prompts the agent learns by itself whether it can be reached
	}
	return watch(ctx, m, watchEvery)
}

// own attaches the sandbox of an agent that has a container of its own; nil without an error when it has none.
func (d *Deployer) own(ctx context.Context, record *doc.Object) (sandbox.Machine, error) {
	rec := sandbox.AgentRecord(record)
	if rec.ID == "" || rec.Mode != sandbox.Container || rec.Installed != "" {
		return nil, nil
	}
	return d.o.Sandboxes.Attach(ctx, rec)
}

// logs returns the end of what an agent's container wrote, "" when it cannot be had: a failure has its own words already.
func logs(ctx context.Context, m sandbox.Machine) string {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), logLimit)
	defer stop()
	p, err := m.Container(ctx, "")
	c, ok := p.(served)
	if err != nil || !ok {
		return ""
	}
	stdout, stderr, err := c.Logs(ctx, logLines)
	if err != nil || len(stdout)+len(stderr) == 0 {
		return ""
	}
	return "[stdout]\n" + tail(stdout) + "\n[stderr]\n" + tail(stderr)
}

func tail(b []byte) string {
	s := []rune(strings.ToValidUTF8(strings.TrimRight(string(b), "\n"), "\uFFFD"))
	return string(s[max(0, len(s)-logChars):])
}

// Logs returns the end of what a recorded agent's container wrote (the last 500 characters of each stream), without the secrets that this
// program gave it; "" when there is none or it cannot be had.
func (d *Deployer) Logs(ctx context.Context, record *doc.Object) string {
	look, stop := context.WithTimeout(context.WithoutCancel(ctx), logLimit)
	defer stop()
	m, err := d.own(look, record)
	if err != nil || m == nil {
		return ""
	}
	text := logs(look, m)
	if text == "" {
		return ""
	}
	id := m.Info().ID
	return "[container of " + id + "]\n" + hider(d.given(id))(text)
}

// Secrets returns what this program may have given the agent of a sandbox and nobody else is to see: its token, where it
// stages its changelog, the configured model key and the headers of model calls, and of an agent that this Deployer deployed the variables whose names say
// that they are secret; each also as JSON writes it. Short values are left out: they may be words that an agent has reason to say.
func (d *Deployer) Secrets(sandboxID string) []string {
	env := d.given(sandboxID)
	headers := secretValues(map[string]string{varHeaders: env[varHeaders]})
	delete(env, varHeaders)
	const word, name = 8, 16
	if folder, err := d.StagingFolder(sandboxID); err == nil {
		headers = append(headers, folder)
	}
	all := append(slices.DeleteFunc(secretValues(env), func(v string) bool { return len(v) < word }), slices.DeleteFunc(headers, func(v string) bool { return len(v) < name })...)
	if own, known := d.variables.Load(sandboxID); known {
		for _, v := range own.([]string) {
			if len(v) >= word && !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
	return withEscaped(all)
}

// withEscaped adds what values look like inside of JSON, where that is not the same.
func withEscaped(values []string) []string {
	out := slices.Clone(values)
	for _, v := range values {
		for _, html := range []bool{true, false} {
			var b strings.Builder
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(html)
			if e.Encode(v) != nil {
				continue
			}
			if inside := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`); !slices.Contains(out, inside) {
				out = append(out, inside)
			}
		}
	}
	return out
}

// given are the secret variables that this program may have given an agent that runs already.
func (d *Deployer) given(sandboxID string) map[string]string {
	env := map[string]string{}
	var err error
	if env[varToken], err = d.o.Tokens.For(sandboxID); err != nil {
		delete(env, varToken)
	}
	if m, err := d.o.Model(); err == nil {
		key, kerr := m.APIKey()
		headers, herr := m.ExtraHeaders()
		text, terr := doc.Marshal(headers)
		if kerr == nil {
			env[varKey] = key
		}
		if errors.Join(herr, terr) == nil {
			env[varHeaders] = string(text)
		}
	}
	return env
}
