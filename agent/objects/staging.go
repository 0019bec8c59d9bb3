package objects

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/protocol/transfer"
	"agentenv/store/object"
)

const (
	stagingPath    = "/ext/staging" // unless the card says otherwise
	stagingAtATime = 4
	stagingLimit   = 30 * time.Second // of a request that moves no object
	clearLimit     = 10 * time.Second
	maxListing     = 16 << 20
)

// stages reports whether objects for an agent may be put on the agent itself. A plain http address is used only where nobody else can
// listen: for sandboxes on this machine, at an address of it or of a private network. The grants name https all the same, as they must, and
// are good over the agent's own loopback alone.
func (m *Mover) stages(e agent.Endpoint) bool {
	if e.Card.Extension(card.Staging) == nil {
		return false
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Host == "" {
		return false
	}
	if u.Scheme == "https" {
		return true
	}
	return u.Scheme == "http" && e.SandboxType != "" && m.o.Near(e.SandboxType) && private(u.Hostname())
}

func private(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsPrivate())
}

// staging is a folder in the staging store of an agent.
type staging struct {
	m       *Mover
	folder  string // its URL for this program
	granted string // its URL in grants
	path    string // its path on the agent's own server
	max     int64  // what the store holds; 0 = not told
	headers map[string]string
	names   int
}

// stage returns a folder that nobody guesses, for an agent that stages says yes to.
func (m *Mover) stage(e agent.Endpoint) *staging {
	return m.stagingAt(e, stagingRoot(e)+"/"+strings.ToLower(rand.Text() + rand.Text())[:32])
}

// stagingRoot is the path of the staging store on the agent's own server.
func stagingRoot(e agent.Endpoint) string {
	endpoint, _ := e.Card.Extension(card.Staging).Params["endpoint"].(string)
	if !strings.HasPrefix(endpoint, "/") {
		endpoint = stagingPath
	}
	return strings.TrimRight(endpoint, "/")
}

// StagingURL returns where what an agent stages in a folder of that name lies, "" for an agent that stages nothing. It is a secret as the
// name is.
func (m *Mover) StagingURL(e agent.Endpoint, folder string) string {
	if !m.stages(e) {
		return ""
	}
	return m.stagingAt(e, stagingRoot(e)+"/"+folder).folder
}

// stagingAt returns the folder at a path of the agent's own server.
func (m *Mover) stagingAt(e agent.Endpoint, path string) *staging {
	s := &staging{m: m, path: path, headers: e.Headers}
	s.folder = strings.TrimRight(e.URL, "/") + path
	s.granted = "https" + strings.TrimPrefix(strings.TrimPrefix(s.folder, "https"), "http")
	if n, ok := e.Card.Extension(card.Staging).Params["max_bytes"].(json.Number); ok {
		if most, err := n.Int64(); err == nil && most > 0 {
			s.max = most
		}
	}
	return s
}

// grant returns a grant for a new object, and its name in the folder.
func (s *staging) grant(kind string) (transfer.Grant, string) {
	s.names++
	name := strconv.Itoa(s.names)
	return transfer.Grant{Kind: kind, URL: s.granted + "/" + name, ExpiresAt: s.m.soon(), Headers: map[string]string{transfer.StagingPath: s.path + "/" + name}}, name
}

// own is a grant for this program itself.
func (s *staging) own(kind, name string) transfer.Grant {
	return transfer.Grant{Kind: kind, URL: s.folder + "/" + name, ExpiresAt: s.m.soon(), Headers: s.headers}
}

// put is an object of the store that an agent is to read.
type put struct {
	name, url string
	size      int64
}

// putAll puts objects on the agent, some at once; what does not fit is refused before.
func (s *staging) putAll(ctx context.Context, all []put) error {
	total := int64(0)
	for _, p := range all {
		total += p.size
	}
	if s.max > 0 && total > s.max {
		return fault.New(fault.Unavailable, "the objects have %d bytes, and the agent's staging holds %d at most: raise AGENTENV_STAGING_MAX_BYTES of the agent", total, s.max)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(stagingAtATime)
	for _, p := range all {
		group.Go(func() error { return s.put(ctx, p) })
	}
	return group.Wait()
}

func (s *staging) put(ctx context.Context, p put) error {
	to := transfer.WriteObject{MediaType: octets, MaxBytes: max(p.size, 1), Write: s.own(transfer.KindPut, p.name)}
	_, err := s.m.transfer.Upload(ctx, to, transfer.Source{Size: p.size, Open: func() (io.ReadCloser, error) { return s.m.o.Store.Open(ctx, p.url) }})
	if err != nil {
		return fault.At(s.explain(ctx, err), "the object at %s could not be staged on the agent", p.url)
	}
	return nil
}

// errGone is an object that is not on the agent any more.
var errGone = errors.New("it is not there")

// explain tells a failed transfer without the path.
func (s *staging) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var t *transfer.Error
	if !errors.As(err, &t) {
		return err
	}
	kind := fault.Unavailable
	switch answered := t.Answered(); {
	case answered == http.StatusRequestEntityTooLarge:
		return fault.New(kind, "its staging is full")
	case answered == http.StatusInsufficientStorage:
		return fault.New(kind, "its disk is full")
	case answered == http.StatusNotFound:
		return fault.Wrap(kind, errGone, "it answered %d", answered)
	case answered != 0:
		return fault.New(kind, "it answered %d", answered)
	case t.Retryable:
		return fault.New(kind, "the agent could not be reached")
	}
	return fault.New(kind, "%s", strings.TrimSuffix(t.Error(), "."))
}

// arrival is an object that an agent wrote into its staging store, and where it is to go.
type arrival struct {
	url, media string
	size       int64  // -1 = as large as most
	most       int64  // 0 = size
	sum        string // "" = not told
}

// take brings an object from the agent into the store, over one that is there, and removes it from the agent unless it was written anew
// meanwhile.
func (s *staging) take(ctx context.Context, name string, o arrival) error {
	key, err := s.m.o.Store.Key(o.url)
	if err != nil {
		return err
	}
	from := transfer.ReadObject{MediaType: octets, MaxBytes: max(o.size, o.most), Size: o.size, SHA256: o.sum, Read: s.own(transfer.KindGet, name)}
	tag := ""
	_, err = s.m.transfer.Fetch(ctx, from, func(t string, body io.Reader) error {
		tag = t
		_, err := s.m.o.Store.Put(ctx, object.Item{Key: key, ContentType: o.media, Size: -1, Body: body}, true)
		return err
	})
	if err != nil {
		return fault.At(s.explain(ctx, err), "what the agent staged could not be brought to %s", o.url)
	}
	return s.remove(ctx, name, tag)
}

// remove deletes one object, unless it has another tag than the one given.
func (s *staging) remove(ctx context.Context, name, tag string) error {
	status, err := s.request(ctx, http.MethodDelete, "/"+name, tag, nil)
	if err == nil && status/100 != 2 && status != http.StatusNotFound && status != http.StatusPreconditionFailed {
		err = fault.New(fault.Unavailable, "it answered %d", status)
	}
	return fault.At(err, "what was staged on the agent could not be removed there")
}

// clear removes the folder with all in it, also when ctx has ended; what cannot be removed goes with the agent.
func (s *staging) clear(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), clearLimit)
	defer stop()
	status, err := s.request(ctx, http.MethodDelete, "/", "", nil)
	if err != nil || status/100 != 2 {
		s.m.o.Log.Warn("what was staged on an agent could not be removed there", "status", status, "error", err)
	}
}

// request sends a request that moves no object; a success is read into answer, unless that is nil. The error holds no path.
func (s *staging) request(ctx context.Context, method, below, tag string, answer any) (int, error) {
	ctx, stop := context.WithTimeout(ctx, stagingLimit)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, method, s.folder+below, nil)
	if err != nil {
		return 0, fault.New(fault.Invalid, "the agent's address is no URL")
	}
	for k, v := range s.headers {
		r.Header.Set(k, v)
	}
	if tag != "" {
		r.Header.Set("If-Match", tag)
	}
	resp, err := s.m.http.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return 0, fault.Wrap(fault.Unavailable, err, "the agent could not be reached")
	}
	defer resp.Body.Close()
	if answer == nil || resp.StatusCode/100 != 2 {
		return resp.StatusCode, nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxListing)).Decode(answer); err != nil {
		return resp.StatusCode, fault.New(fault.Unavailable, "the agent's staging answered what is no listing")
	}
	return resp.StatusCode, nil
}

// listed is an object in the staging store of an agent.
type listed struct {
	Path string `json:"path"`
	Size int64  `json:"size_bytes"`
	Tag  string `json:"etag"`
}

// list returns what is in the folder.
func (s *staging) list(ctx context.Context) ([]listed, error) {
	var out struct {
		Objects []listed `json:"objects"`
	}
	status, err := s.request(ctx, http.MethodGet, "/", "", &out)
	if err == nil && status/100 != 2 {
		err = fault.New(fault.Unavailable, "it answered %d", status)
	}
	return out.Objects, fault.At(err, "the staging of the agent")
}
