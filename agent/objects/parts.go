package objects

import (
	"context"
	"strings"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/object"
)

// Readable returns parts whose files the agent can read: an object URL of the store becomes an https URL that is good for the lifetime at
// least, by a grant or a signature of the store, or else on the agent's own staging store. All else is as it was; the parts given are not
// changed, and are what is to be recorded. With shareable not nil only the object URLs in it are made readable. An agent that runs in no
// sandbox of ours gets the parts as they are.
//
// The caller calls release once the agent has answered; it removes what was staged. An object that cannot be made readable is an Unsupported
// error and one that is not there NotFound, before anything is sent.
func (m *Mover) Readable(ctx context.Context, e agent.Endpoint, parts []*doc.Object, lifetime time.Duration, shareable map[string]bool) (_ []*doc.Object, release func(context.Context), err error) {
	r := readable{m: m, e: e, lifetime: lifetime, urls: map[string]string{}}
	if e.Sandbox == "" {
		return parts, r.release, nil
	}
	for _, p := range parts {
		url := p.Obj("file").Str("uri")
		if url == "" || !m.o.Store.Owns(url) || shareable != nil && !shareable[url] {
			continue
		}
		if err := r.add(ctx, url); err != nil {
			return nil, nil, err
		}
	}
	if r.staging != nil {
		if err := r.staging.putAll(ctx, r.puts); err != nil {
			r.release(ctx)
			return nil, nil, err
		}
	}
	return r.replace(parts), r.release, nil
}

// readable are the objects of one message.
type readable struct {
	m        *Mover
	e        agent.Endpoint
	lifetime time.Duration
	urls     map[string]string // object URL → what the agent reads
	staging  *staging
	puts     []put
}

func (r *readable) release(ctx context.Context) {
	if r.staging != nil {
		r.staging.clear(ctx)
	}
}

func (r *readable) add(ctx context.Context, url string) error {
	if r.urls[url] != "" {
		return nil
	}
	info, err := r.m.o.Store.Stat(ctx, url)
	if err == nil && info == nil {
		err = fault.New(fault.NotFound, "there is no object at %s", url)
	}
	if err != nil {
		return fault.At(err, "a file of the message")
	}
	grants := object.GrantsFor(r.m.o.Grants, url)
	read, err := object.ReadableURL(ctx, grants, url, r.e.SandboxType, r.lifetime)
	if err != nil {
		return fault.At(err, "the file %s of the message", url)
	}
	if read == "" {
		read = r.stage(url, info.Size)
	}
	if read == "" {
		kind, _, _ := strings.Cut(url, ":")
		why := "issues no grants"
		if grants != nil {
			why = "gives no URL that is good there"
		}
		return fault.New(fault.Unsupported, "%s cannot read the file %s of the message: the object store for %s: URLs %s, for %s, and the agent offers no staging over https; send the file's bytes instead",
			r.e, url, kind, why, provider(r.e))
	}
	r.urls[url] = read
	return nil
}

// stage returns the URL that an object will have on the agent, "" where it offers no staging under an https URL: what reads a plain URL does
// not know that the agent's own loopback is meant.
func (r *readable) stage(url string, size int64) string {
	if !strings.HasPrefix(r.e.URL, "https://") || !r.m.stages(r.e) {
		return ""
	}
	if r.staging == nil {
		r.staging = r.m.stage(r.e)
	}
	g, name := r.staging.grant("")
	r.puts = append(r.puts, put{name: name, url: url, size: size})
	return g.URL
}

// replace copies the parts that change.
func (r *readable) replace(parts []*doc.Object) []*doc.Object {
	out := make([]*doc.Object, len(parts))
	for i, p := range parts {
		out[i] = p
		if url := r.urls[p.Obj("file").Str("uri")]; url != "" {
			out[i] = p.Clone().Set("file", p.Obj("file").Clone().Set("uri", url))
		}
	}
	return out
}
