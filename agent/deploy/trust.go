package deploy

import (
	"slices"

	"agentenv/sandbox"
)

// Where an agent finds the certificates that it is to believe, as libraries for TLS commonly look for them.
const (
	trustVar  = "SSL_CERT_FILE"
	trustFile = "/etc/agentenv/ca-bundle.pem"
)

// trust gives an agent the certificates by which it believes the server of grants, unless it was given others, or may come to run on another
// machine.
func (d *Deployer) trust(spec *sandbox.Spec, provider string) error {
	if _, given := spec.Env[trustVar]; given || d.o.Trust == nil {
		return nil
	}
	names, err := d.o.Sandboxes.Resolve(provider)
	if err != nil || slices.ContainsFunc(names, func(n string) bool { return !d.here(n) }) {
		return nil //nolint:nilerr // the manager reports a provider that is none
	}
	text, err := d.o.Trust()
	if err != nil || len(text) == 0 {
		return err
	}
	spec.Files = map[string][]byte{trustFile: text}
	spec.Env[trustVar] = trustFile
	return nil
}
