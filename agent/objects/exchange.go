package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/transfer"
	"agentenv/store/doc"
	"agentenv/store/object"
)

// exchange is one call and the objects that go with it.
type exchange struct {
	m       *Mover
	e       agent.Endpoint
	f       form
	staging *staging // nil = by grants of the store
	reads   []put
	grants  object.Grants // that the call uses; nil = none of a store
}

// exchange begins a call whose objects are at these URLs; what it refuses is refused before anything is sent. The caller closes it.
func (m *Mover) exchange(e agent.Endpoint, f form, urls ...string) (*exchange, error) {
	how, err := m.mode(e, f, urls...)
	if err != nil {
		return nil, err
	}
	return m.begin(e, f, how), nil
}

func (m *Mover) begin(e agent.Endpoint, f form, how mode) *exchange {
	x := &exchange{m: m, e: e, f: f}
	if how == staged {
		x.staging = m.stage(e)
	}
	return x
}

// close removes what is left on the agent, as well as it can.
func (x *exchange) close(ctx context.Context) {
	if x.staging != nil {
		x.staging.clear(ctx)
	}
}

// read lets the agent read an object of at most limit bytes, and returns the descriptor for the request.
func (x *exchange) read(ctx context.Context, url, what string, limit int64) (transfer.ReadObject, error) {
	info, err := x.m.o.Store.Stat(ctx, url)
	switch {
	case err != nil:
		return transfer.ReadObject{}, fault.At(err, "%s", what)
	case info == nil:
		return transfer.ReadObject{}, fault.New(fault.NotFound, "%s: there is no object at %s", what, url)
	case info.Size > limit:
		return transfer.ReadObject{}, fault.New(fault.Invalid, "%s: the object at %s has %d bytes, and an agent is given %d at most", what, url, info.Size, limit)
	}
	o := transfer.ReadObject{MediaType: octets, MaxBytes: max(info.Size, 1), Size: info.Size, SHA256: info.SHA256}
	if x.staging != nil {
		var name string
		o.Read, name = x.staging.grant(transfer.KindGet)
		x.reads = append(x.reads, put{name: name, url: url, size: info.Size})
		return o, nil
	}
	x.grants = object.GrantsFor(x.m.o.Grants, url)
	o.Read, err = x.grants.Read(ctx, url, 0)
	return o, fault.At(err, "%s", what)
}

// target is an object that the agent is to write.
type target struct {
	transfer.WriteObject
	url, what string
	name      string // on the agent
}

// write lets the agent write an object of at most limit bytes.
func (x *exchange) write(ctx context.Context, url, what, media string, limit int64) (target, error) {
	t := target{WriteObject: transfer.WriteObject{MediaType: media, MaxBytes: limit}, url: url, what: what}
	if x.staging != nil {
		if x.staging.max > 0 {
			t.MaxBytes = min(limit, x.staging.max)
		}
		t.Write, t.name = x.staging.grant(transfer.KindPut)
		return t, nil
	}
	x.grants = object.GrantsFor(x.m.o.Grants, url)
	if most := x.grants.MaxSingleUpload(); most > 0 {
		t.MaxBytes = min(limit, most)
	}
	var err error
	t.Write, err = x.grants.Write(ctx, url, media, t.MaxBytes, 0)
	return t, fault.At(err, "%s", what)
}

// call puts what the agent is to read where it reads it, and asks.
func (x *exchange) call(ctx context.Context, body *doc.Object) (*doc.Object, error) {
	if x.staging != nil {
		if err := x.staging.putAll(ctx, x.reads); err != nil {
			return nil, fault.At(err, "%s", x.f)
		}
	}
	answer, err := x.m.o.Client.Call(ctx, x.e, agent.Call{URI: x.f.uri, Op: x.f.op, Body: body, Timeout: movingLimit, Grants: true})
	return answer, x.hinted(err)
}

// hinted adds to an agent's report that it could not reach a grant what there is to look at.
func (x *exchange) hinted(err error) error {
	var c *agent.CallError
	if !errors.As(err, &c) || c.Code != "transfer_unavailable" {
		return err
	}
	hint := "it could not use its own staging store: upgrade the agent, or use an object store whose grants reach it"
	if x.grants != nil {
		hint = x.grants.Hint()
	}
	if hint == "" {
		return err
	}
	out := *c
	out.Err = fault.New(fault.KindOf(err), "%v (%s)", c.Err, hint)
	return &out
}

// keep takes what the agent says it wrote as an object, brings it into the store if it is staged, and sees that it is there.
func (x *exchange) keep(ctx context.Context, t target, told any) (transfer.Uploaded, error) {
	u, err := uploaded(t.what, told)
	switch {
	case err != nil:
		return u, untrue("%s: the answer of %s does not tell what it wrote: %v", x.f, x.e, err)
	case u.Size > t.MaxBytes:
		return u, untrue("%s: %s wrote %d bytes as the %s, more than the %d it was granted", x.f, x.e, u.Size, t.what, t.MaxBytes)
	}
	if x.staging != nil {
		if err := x.staging.take(ctx, t.name, arrival{url: t.url, media: t.MediaType, size: u.Size, sum: u.SHA256}); errors.Is(err, errGone) {
			return u, untrue("%s: %s says that it wrote the %s, but it is not there", x.f, x.e, t.what)
		} else if err != nil {
			return u, &StoreError{fault.At(err, "%s: the %s", x.f, t.what)}
		}
		return u, nil
	}
	info, err := x.m.o.Store.Stat(ctx, t.url)
	switch {
	case err != nil:
		return u, fault.At(err, "%s: the %s", x.f, t.what)
	case info == nil:
		return u, untrue("%s: %s says that it wrote the %s, but there is no object at %s", x.f, x.e, t.what, t.url)
	case info.Size != u.Size || u.SHA256 != "" && info.SHA256 != "" && info.SHA256 != u.SHA256:
		return u, untrue("%s: the object at %s is not the %s that %s says it wrote", x.f, t.url, t.what, x.e)
	}
	return u, nil
}

// untrue is the error of an answer that does not say what it should, or what is not so: Unavailable, as an answer that is none at all.
func untrue(format string, args ...any) error {
	return &agent.CallError{Status: http.StatusOK, Err: fault.New(fault.Unavailable, format, args...)}
}

// uploaded reads what an agent says it wrote.
func uploaded(what string, v any) (transfer.Uploaded, error) {
	text, err := doc.Compact(v)
	if err != nil {
		return transfer.Uploaded{}, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var plain any
	if err := d.Decode(&plain); err != nil {
		return transfer.Uploaded{}, err
	}
	return transfer.ParseUploaded("objects."+what, plain)
}

// field returns a text field of an agent's answer that must be there.
func (x *exchange) field(answer *doc.Object, name string) (string, error) {
	s := answer.Str(name)
	if s == "" {
		return "", untrue("%s: the answer of %s has no %s", x.f, x.e, name)
	}
	return s, nil
}

// wire returns the document form of a descriptor.
func wire(o interface{ JSON() map[string]any }) any { return doc.MustFrom(o.JSON()) }

// soon is the end of a grant that is for one call alone.
func (m *Mover) soon() time.Time { return m.o.Now().Add(2 * movingLimit).UTC().Truncate(time.Second) }
