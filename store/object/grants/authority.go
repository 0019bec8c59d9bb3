package grants

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"agentenv/fault"
)

const (
	authorityDays = 1825
	// leftDays is how long a stored authority must still hold to be used.
	leftDays  = 30
	hostAlias = "host.docker.internal"
)

// The names and networks an authority may vouch for: this machine and private networks.
var (
	permittedNames    = []string{"localhost", hostAlias}
	permittedNetworks = networks("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7")
)

func networks(list ...string) (out []*net.IPNet) {
	for _, s := range list {
		_, n, err := net.ParseCIDR(s)
		if err != nil {
			panic(err) // a constant
		}
		out = append(out, n)
	}
	return out
}

// authority is the certificate authority of one user, which vouches for grant servers on this machine and for nothing else.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// openAuthority returns the authority kept in a folder, making one where there is none that still holds for a while. Processes that start at
// the same time agree on one.
func openAuthority(dir string, now time.Time) (*authority, error) {
	file := filepath.Join(dir, "ca.key.pem")
	a, err := readAuthority(file, now)
	if a != nil || err != nil {
		return a, err
	}
	_, statErr := os.Stat(file)
	if a, err = newAuthority(now); err != nil {
		return nil, err
	}
	text, err := a.text()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "the folder %s", dir)
	}
	temp, err := os.CreateTemp(dir, ".ca-") // 0600
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "the folder %s", dir)
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "writing %s", file)
	}
	if errors.Is(statErr, fs.ErrNotExist) {
		if err = os.Link(temp.Name(), file); errors.Is(err, fs.ErrExist) {
			if other, err := readAuthority(file, now); other != nil || err != nil {
				return other, err // another process was first
			}
		}
	} else {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "writing %s", file)
	}
	return a, nil
}

// readAuthority returns nil when the file holds none that can be used.
func readAuthority(file string, now time.Time) (*authority, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), err, "reading %s", file)
	}
	return parseAuthority(text, now), nil
}

// parseAuthority reads a key and its certificate; nil for anything that is no authority as this version makes them.
func parseAuthority(text []byte, now time.Time) *authority {
	first, rest := pem.Decode(text)
	if first == nil || first.Type != "PRIVATE KEY" {
		return nil
	}
	second, _ := pem.Decode(rest)
	if second == nil || second.Type != "CERTIFICATE" {
		return nil
	}
	key, err := x509.ParsePKCS8PrivateKey(first.Bytes)
	ec, isEC := key.(*ecdsa.PrivateKey)
	if err != nil || !isEC {
		return nil
	}
	cert, err := x509.ParseCertificate(second.Bytes)
	if err != nil || !cert.IsCA || !ec.PublicKey.Equal(cert.PublicKey) {
		return nil
	}
	same := slices.Equal(cert.PermittedDNSDomains, permittedNames) && cert.PermittedDNSDomainsCritical && len(cert.ExcludedDNSDomains) == 0 &&
		slices.EqualFunc(cert.PermittedIPRanges, permittedNetworks, func(a, b *net.IPNet) bool { return a.String() == b.String() })
	if !same || now.Before(cert.NotBefore) || now.AddDate(0, 0, leftDays).After(cert.NotAfter) {
		return nil
	}
	return &authority{ec, cert}
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	var mark [4]byte
	_, _ = rand.Read(mark[:])
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "agent-env local transfer CA " + hex.EncodeToString(mark[:])},
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.AddDate(0, 0, authorityDays), SignatureAlgorithm: x509.ECDSAWithSHA256,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		PermittedDNSDomains: permittedNames, PermittedDNSDomainsCritical: true, PermittedIPRanges: permittedNetworks,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{key, cert}, err
}

func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

func (a *authority) text() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), a.pem()...), nil
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// serve returns a certificate for a server that is reached by the given hosts, as far as the authority may vouch for them.
func (a *authority) serve(now time.Time, hosts ...string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: serial(), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: now.Add(-5 * time.Minute), NotAfter: a.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return tls.Certificate{}, err
	}
	id := sha256.Sum256(public)
	t.SubjectKeyId = id[:20]
	for _, h := range append([]string{"localhost", hostAlias, "127.0.0.1"}, hosts...) {
		ip := net.ParseIP(h)
		switch {
		case !vouched(h):
		case ip != nil && !slices.ContainsFunc(t.IPAddresses, ip.Equal):
			t.IPAddresses = append(t.IPAddresses, ip)
		case ip == nil && !slices.Contains(t.DNSNames, h):
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}, nil
}

// trust writes what containers need to believe the servers: ca.pem, and ca-bundle.pem with the public authorities before it. They are written
// once for each authority.
func (a *authority) trust(dir string, public []byte) (string, error) {
	sum := sha256.Sum256(a.cert.Raw)
	dir = filepath.Join(dir, "trust", hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fault.Wrap(fault.KindOf(err), err, "the folder %s", dir)
	}
	bundle := a.pem()
	if len(public) > 0 {
		bundle = append(append(bytes.Clone(public), '\n'), bundle...)
	}
	for name, text := range map[string][]byte{"ca.pem": a.pem(), "ca-bundle.pem": bundle} {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			continue
		}
		temp, err := os.CreateTemp(dir, ".new-")
		if err != nil {
			return "", fault.Wrap(fault.KindOf(err), err, "the folder %s", dir)
		}
		_, err = temp.Write(text)
		if err = errors.Join(err, temp.Chmod(0o644), temp.Close()); err == nil {
			err = os.Rename(temp.Name(), file)
		}
		if err != nil {
			os.Remove(temp.Name())
			return "", fault.Wrap(fault.KindOf(err), err, "writing %s", file)
		}
	}
	return dir, nil
}
