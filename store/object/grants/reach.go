package grants

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"agentenv/store/object"
)

// Place says where the sandboxes of one type run.
type Place struct {
	Here bool // on this machine
	// HostAddress is the address by which virtual machines of the type reach this machine; "" for a type that gives containers.
	HostAddress string
}

// Issuer returns the grants as stores offer them. where says of a sandbox type where its sandboxes run; a type it does not know has no place.
func (g *Grants) Issuer(where func(sandboxType string) Place) object.Grants {
	return issuer{g, where}
}

type issuer struct {
	*Grants
	where func(string) Place
}

// Reach is true for containers on this machine, which are told where the advertised host is unless that is the container itself, and for
// virtual machines on it where the server listens on the address by which they reach it and is advertised under a name, which they are told too.
func (i issuer) Reach(sandboxType string) bool {
	if sandboxType == "" {
		return false
	}
	at, host := i.where(sandboxType), i.server.o.Advertise
	switch {
	case !at.Here:
		return false
	case at.HostAddress == "":
		return !loopback(host)
	}
	return net.ParseIP(host) == nil && !loopback(host) && i.server.listensOn(at.HostAddress)
}

// MaxSingleUpload is 0: a local store takes what fits on its disk.
func (issuer) MaxSingleUpload() int64 { return 0 }

// SignedGet returns "": a local store signs no URLs.
func (issuer) SignedGet(context.Context, string, time.Duration) (string, error) { return "", nil }

// SignedPut returns "": a local store signs no URLs.
func (issuer) SignedPut(context.Context, string, time.Duration) (string, error) { return "", nil }

// Hint names the server and the settings that place it.
func (i issuer) Hint() string {
	origin, bound := i.server.Where()
	if origin == "" {
		return ""
	}
	return fmt.Sprintf("grants of the local object store are served at %s, listening on %s: see that a firewall lets the sandbox through, or set grant_advertise_host and grant_bind_host",
		origin, strings.Join(bound, " and "))
}

// loopback reports whether a host is whoever asks.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}

// listensOn reports whether the server listens on an address: the configured one, or where it was started.
func (s *Server) listensOn(address string) bool {
	ip := net.ParseIP(address)
	if ip == nil {
		return false
	}
	if bind := net.ParseIP(s.o.Bind); bind != nil {
		return bind.Equal(ip) || bind.IsUnspecified()
	}
	_, bound := s.Where()
	for _, b := range bound {
		host, _, _ := net.SplitHostPort(b)
		if net.ParseIP(host).Equal(ip) {
			return true
		}
	}
	return false
}
