// Package grants lets others move objects of stores on this machine without access to the stores: it hands out permissions that name one object
// or one path, end by themselves, and are served over HTTPS by this process. They die with it, but for permissions to write
// below a path where there is a key that lasts: a later process takes those up (Resume).
package grants

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"agentenv/fault"
	"agentenv/protocol/transfer"
	"agentenv/store/object"
)

const (
	// MinLifetime is the least that may be configured as the lifetime of grants.
	MinLifetime = 15 * time.Minute
	// DefaultLifetime is how long a grant lasts when the caller names nothing.
	DefaultLifetime = 12 * time.Hour
	// MaxLifetime is the most that a grant may be asked to last.
	MaxLifetime = 14 * 24 * time.Hour

	startLimit = 10 * time.Second
	grantsPath = "/v1/grants/"
)

// Options is what a Server is made of.
type Options struct {
	Bind      string        // the address to listen on; "" = what Bridge returns, and 127.0.0.1
	Advertise string        // the host in grants; "" = host.docker.internal
	Dir       string        // where the authority is kept
	Lifetime  time.Duration // of a grant that is asked for without one; 0 = DefaultLifetime
	Public    []byte        // certificates that containers trust besides ours, as PEM
	// Bridge returns the address by which containers reach this machine, "" when there is none. nil: none.
	Bridge func(context.Context) (string, error)
	// Lasting returns the key of permissions to write below a path, which is the same in later processes; a secret. nil: they die with the
	// process as well.
	Lasting func() ([]byte, error)
	Log     *slog.Logger
	Now     func() time.Time
}

// Server issues grants and serves them. It listens from the first grant on. Safe for concurrent use.
type Server struct {
	o   Options
	key [32]byte

	mu       sync.Mutex
	stores   map[string]object.Store
	ca       *authority
	base     string // https://host:port, "" before the start
	bound    []string
	servers  []*http.Server
	settings *tls.Config
	ports    map[int]bool // that are listened on
	serving  sync.WaitGroup
	isClosed bool
}

// New returns a server; nothing is opened before the first grant. Settings that cannot be are an Invalid error.
func New(o Options) (*Server, error) {
	if err := CheckHosts(o.Advertise, o.Bind); err != nil {
		return nil, err
	}
	if o.Advertise == "" {
		o.Advertise = hostAlias
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Lifetime == 0 {
		o.Lifetime = DefaultLifetime
	}
	if o.Lifetime < MinLifetime || o.Lifetime > MaxLifetime {
		return nil, fault.New(fault.Invalid, "grant_lifetime_seconds is %d; it must be between %d and %d", int(o.Lifetime.Seconds()), int(MinLifetime.Seconds()), int(MaxLifetime.Seconds())).WithClass("ConfigError")
	}
	s := &Server{o: o, stores: map[string]object.Store{}, ports: map[int]bool{}}
	_, _ = rand.Read(s.key[:])
	return s, nil
}

// Of returns the grants of one store. id tells stores of this machine apart.
func (s *Server) Of(id string, st object.Store) *Grants {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores[id] = st
	return &Grants{s, id, st}
}

// Grants issues grants for the objects of one store. A lifetime of 0 is the server's. Errors: Invalid for a URL of another store and for a
// lifetime that is none or too long, Unavailable when the server cannot be started. Safe for concurrent use.
type Grants struct {
	server *Server
	id     string
	store  object.Store
}

// Lifetime is how long a grant lasts when nothing is asked.
func (g *Grants) Lifetime() time.Duration { return g.server.o.Lifetime }

// Read returns a grant to read an object, whether or not it is there.
func (g *Grants) Read(ctx context.Context, url string, lifetime time.Duration) (transfer.Grant, error) {
	key, err := g.store.Key(url)
	if err != nil {
		return transfer.Grant{}, err
	}
	return g.one(ctx, transfer.KindGet, claims{Op: opGet, Key: &key}, lifetime)
}

// Write returns a grant to write an object of a type, of at most so many bytes, over one that is there.
func (g *Grants) Write(ctx context.Context, url, mediaType string, maxBytes int64, lifetime time.Duration) (transfer.Grant, error) {
	key, err := g.store.Key(url)
	if err != nil {
		return transfer.Grant{}, err
	}
	grant, err := g.one(ctx, transfer.KindPut, claims{Op: opPut, Key: &key, Max: &maxBytes, Type: &mediaType}, lifetime)
	grant.Headers = map[string]string{"Content-Type": mediaType}
	return grant, err
}

// Policy returns a permission to write objects below a URL that ends in a slash, each of at most so many bytes, and when it ends.
func (g *Grants) Policy(ctx context.Context, prefixURL string, maxObjectBytes int64, lifetime time.Duration) (transfer.Policy, time.Time, error) {
	key, err := g.store.Key(prefixURL)
	if err != nil {
		return transfer.Policy{}, time.Time{}, err
	}
	if key == "." {
		key = ""
	}
	if n := len(key); n > 0 && key[n-1] != '/' {
		key += "/"
	}
	grant, err := g.one(ctx, transfer.KindPost, claims{Op: opPost, Prefix: &key, Max: &maxObjectBytes}, lifetime)
	return transfer.Policy{URL: grant.URL, Fields: map[string]string{}, PathField: "key", FileField: "file"}, grant.ExpiresAt, err
}

func (g *Grants) one(ctx context.Context, kind string, c claims, lifetime time.Duration) (transfer.Grant, error) {
	s := g.server
	switch {
	case lifetime == 0:
		lifetime = s.o.Lifetime
	case lifetime < 0:
		return transfer.Grant{}, fault.New(fault.Invalid, "a grant must last longer than %s", lifetime)
	case lifetime > MaxLifetime:
		return transfer.Grant{}, fault.New(fault.Unavailable, "a grant of the local object store lasts %s at most, and %s was asked for", MaxLifetime, lifetime)
	}
	base, err := s.start(ctx)
	if err != nil {
		return transfer.Grant{}, err
	}
	key := s.key[:]
	if c.Op == opPost && s.o.Lasting != nil {
		if key, err = s.o.Lasting(); err != nil {
			return transfer.Grant{}, err
		}
	}
	ends := s.o.Now().Add(lifetime).Truncate(time.Second)
	var id [8]byte
	_, _ = rand.Read(id[:])
	c.Store, c.Expires, c.ID = g.id, ends.Unix(), hex.EncodeToString(id[:])
	return transfer.Grant{Kind: kind, URL: base + grantsPath + c.sign(key), ExpiresAt: ends.UTC()}, nil
}

// Resume serves at the port of a permission to write below a path that an earlier process gave, beside the port of this one. Conflict when something
// else listens there. A second call is a no-op.
func (g *Grants) Resume(ctx context.Context, port int) error {
	if _, err := g.server.start(ctx); err != nil {
		return err
	}
	return g.server.also(ctx, port)
}

// verify returns what a token allows.
func (s *Server) verify(token string) (claims, bool) {
	c, ok := verify(s.key[:], token, s.o.Now())
	if ok || s.o.Lasting == nil {
		return c, ok
	}
	key, err := s.o.Lasting()
	if err != nil {
		return claims{}, false
	}
	c, ok = verify(key, token, s.o.Now())
	return c, ok && c.Op == opPost
}

// Trust returns the folder with ca.pem and ca-bundle.pem, by which containers believe the server.
func (s *Server) Trust() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.vouch(); err != nil {
		return "", err
	}
	return s.ca.trust(s.o.Dir, s.o.Public)
}

// vouch loads the authority; a process keeps the one it first loaded.
func (s *Server) vouch() (err error) {
	if s.ca == nil {
		s.ca, err = openAuthority(s.o.Dir, s.o.Now())
	}
	return err
}

// Where names the server for a hint about a grant that could not be reached: its origin and the addresses it listens on, "" before the first
// grant.
func (s *Server) Where() (origin string, bound []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base, append([]string(nil), s.bound...)
}

// Close ends the server and with it all its grants; a second call is a no-op.
func (s *Server) Close() error {
	s.mu.Lock()
	s.isClosed = true
	servers := s.servers
	s.servers, s.base = nil, ""
	s.mu.Unlock()
	for _, h := range servers {
		_ = h.Close()
	}
	s.serving.Wait()
	return nil
}

func join(host string, port string) string { return "https://" + net.JoinHostPort(host, port) }
