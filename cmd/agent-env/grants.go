package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentenv/agent/deploy"
	"agentenv/cli"
	"agentenv/config"
	"agentenv/fault"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/store/object"
	"agentenv/store/object/grants"
)

// granting is what this program lets others do with its objects.
type granting struct {
	stores []object.Granting
	// trust returns the certificates by which containers believe the server of grants; nil where it has none to give.
	trust func() ([]byte, error)
}

// lastingKey is the key of grants that a run holds beyond its process: it is derived as agents' tokens are. No sandbox has a NUL in its id, so that no
// token is given away with it.
func lastingKey(t deploy.Tokens) func() ([]byte, error) {
	return func() ([]byte, error) {
		key, err := t.For("grants\x00")
		return []byte(key), err
	}
}

// openGrants makes the server of grants for the stores on this machine, unless they are off. It listens from the first grant on.
func openGrants(c *config.Config, s *cli.Services, stores []object.Store, machine *engine.Lazy, log *slog.Logger) (granting, error) {
	var g granting
	for _, st := range stores {
		g.stores = append(g.stores, object.Granting{Store: st})
	}
	choice, err := c.Seam("object")
	if err != nil {
		return g, err
	}
	switch v := choice.Config.Value("grants"); v {
	case "off":
		return g, nil
	case "auto", nil:
	default:
		return g, fault.New(fault.Invalid, "%s: grants is %v; it must be \"auto\" or \"off\"", choice.Where, v).WithClass("ConfigError")
	}
	o := grants.Options{Bind: choice.Config.Str("grant_bind_host"), Advertise: choice.Config.Str("grant_advertise_host"), Dir: filepath.Join(c.StateRoot(), "tls"),
		Public: grants.PublicAuthorities(), Log: log, Lasting: lastingKey(deploy.NewTokens(filepath.Join(c.StateRoot(), tokenKey))), Bridge: func(ctx context.Context) (string, error) {
			e, err := machine.Get(ctx)
			if err != nil {
				return "", err
			}
			return local.Bridge(ctx, e)
		}}
	if v := choice.Config.Value("grant_lifetime_seconds"); v != nil {
		n, whole := choice.Config.Int("grant_lifetime_seconds")
		if !whole || n < 1 || n > int64(grants.MaxLifetime/time.Second) {
			return g, fault.New(fault.Invalid, "%s: grant_lifetime_seconds is %v; it must be a whole number of seconds from %d to %d", choice.Where, v,
				int(grants.MinLifetime.Seconds()), int(grants.MaxLifetime.Seconds())).WithClass("ConfigError")
		}
		o.Lifetime = time.Duration(n) * time.Second
	}
	server, err := grants.New(o)
	if err != nil {
		return g, fault.At(err, "%s", choice.Where)
	}
	s.Closers = append(s.Closers, server.Close)
	here := near(s)
	where := func(kind string) grants.Place { return grants.Place{Here: here(kind)} }
	for i, st := range stores {
		id, err := storeID(st)
		if err != nil {
			return g, err
		}
		g.stores[i].Grants = server.Of(id, st).Issuer(where)
	}
	if len(o.Public) == 0 {
		log.Debug("this machine has no file of public certificates, so agents are not told to trust its grants: they would trust nothing else then")
		return g, nil
	}
	g.trust = func() ([]byte, error) {
		dir, err := server.Trust()
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(filepath.Join(dir, "ca-bundle.pem"))
		if err != nil {
			return nil, fault.Wrap(fault.KindOf(err), err, "the certificates for agents")
		}
		return text, nil
	}
	return g, nil
}

// near tells which sandbox types run on this machine.
func near(s *cli.Services) func(string) bool {
	return func(kind string) bool {
		p, err := s.Sandboxes.Provider(kind)
		return err == nil && p.Capabilities().OnThisMachine
	}
}

// storeID tells stores apart in grants: it is made of the folder's path.
func storeID(st object.Store) (string, error) {
	url, err := st.URL("x")
	if err != nil {
		return "", err
	}
	root := strings.TrimSuffix(strings.TrimPrefix(url, "file://"), "/x")
	sum := sha256.Sum256([]byte(root))
	return hex.EncodeToString(sum[:8]), nil
}
