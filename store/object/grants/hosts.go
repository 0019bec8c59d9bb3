package grants

import (
	"net"
	"os"
	"strings"

	"agentenv/fault"
)

// vouched reports whether the authority may vouch for a host: localhost, host.docker.internal and names below them, and addresses of this
// machine and of private networks.
func vouched(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		for _, n := range permittedNetworks {
			if n.Contains(ip) {
				return true
			}
		}
		return false
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	for _, p := range permittedNames {
		if name == p || strings.HasSuffix(name, "."+p) {
			return true
		}
	}
	return false
}

// CheckHosts refuses (Invalid) settings that a server cannot have: an advertised host nobody may vouch for, a bind host that is no address.
// Empty ones are the defaults.
func CheckHosts(advertise, bind string) error {
	if advertise != "" && !vouched(advertise) {
		return fault.New(fault.Invalid, "grant_advertise_host %q: use localhost, host.docker.internal, a name below them, or an address of this machine or a private network", advertise).WithClass("ConfigError")
	}
	if bind != "" && net.ParseIP(bind) == nil {
		return fault.New(fault.Invalid, "grant_bind_host %q is no IP address", bind).WithClass("ConfigError")
	}
	return nil
}

// PublicAuthorities returns the certificates this machine trusts, as PEM; nil where they are in no file.
func PublicAuthorities() []byte {
	for _, f := range []string{os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"} {
		if f == "" {
			continue
		}
		if text, err := os.ReadFile(f); err == nil {
			return text
		}
	}
	return nil
}
