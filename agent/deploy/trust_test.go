package deploy_test

import (
	"testing"

	"agentenv/store/doc"
)

// TestTrust gives an agent the certificates of the server of grants, unless there are none or it names its own.
func TestTrust(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trust     string
		own       string
		path, has string
	}{
		"none":    {},
		"given":   {trust: "PEM", path: "/etc/agentenv/ca-bundle.pem", has: "PEM"},
		"its own": {trust: "PEM", own: "/own.pem", path: "/own.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, model{}, nil)
			r.trust = []byte(c.trust)
			defaults := doc.Of()
			if c.own != "" {
				defaults.Set("SSL_CERT_FILE", c.own)
			}
			if _, err := r.Deploy(t.Context(), r.request(defaults, modelFree())); err != nil {
				t.Fatal(err)
			}
			spec := r.provider.Specs()[0]
			if spec.Env["SSL_CERT_FILE"] != c.path || string(spec.Files["/etc/agentenv/ca-bundle.pem"]) != c.has {
				t.Errorf("%q, %q", spec.Env["SSL_CERT_FILE"], spec.Files)
			}
		})
	}
}
