package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
)

const (
	pinTimeout  = 30 * time.Second
	maxManifest = 8 << 20
	maxToken    = 1 << 20
	manifests   = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)

// Pin asks the registry what ref stands for and returns `name:tag@digest` (or `name@digest` when ref has a digest and no
// tag). auth may be nil. It takes 30 s at most. The error is Invalid for a malformed ref or one whose tag has another digest than it
// states, NotFound when there is no such image, Denied when the registry refuses, Unavailable otherwise.
func Pin(ctx context.Context, client *http.Client, ref string, auth *Auth) (string, error) {
	r, err := ParseRef(ref)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	want := r.Tag
	if want == "" && r.Digest == "" {
		want = "latest"
	}
	ask := want
	if ask == "" {
		ask = r.Digest
	}
	digest, err := (&registryCall{client: client, ref: r, text: ref, auth: auth}).digest(ctx, ask)
	if err != nil {
		return "", err
	}
	if r.Digest != "" && digest != r.Digest {
		return "", fault.New(fault.Invalid, "image %s: its tag now stands for %s", ref, digest)
	}
	if want == "" {
		return r.Name + "@" + digest, nil
	}
	return r.Name + ":" + want + "@" + digest, nil
}

// PinnedFrom reports whether pinned is what Pin made of ref: the same text when ref has a digest, else the same name and
// tag with some digest.
func PinnedFrom(pinned, ref string) bool {
	r, err := ParseRef(ref)
	if err != nil {
		return false
	}
	if r.Digest != "" {
		return pinned == ref
	}
	p, err := ParseRef(pinned)
	tag := r.Tag
	if tag == "" {
		tag = "latest"
	}
	return err == nil && p.Name == r.Name && p.Tag == tag && p.Digest != ""
}

type registryCall struct {
	client *http.Client
	ref    Reference
	text   string
	auth   *Auth
	bearer string
}

func (c *registryCall) url(reference string) string {
	host, scheme := c.ref.Host, "https"
	if host == Hub {
		host = "registry-1.docker.io"
	}
	if IsLoopback(host) {
		scheme = "http"
	}
	return scheme + "://" + host + "/v2/" + c.ref.Path + "/manifests/" + reference
}

func (c *registryCall) do(ctx context.Context, method, reference string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url(reference), nil)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "image %s", c.text)
	}
	req.Header.Set("Accept", manifests)
	switch {
	case c.bearer != "":
		req.Header.Set("Authorization", "Bearer "+c.bearer)
	case c.auth != nil:
		req.SetBasicAuth(c.auth.Username, c.auth.Password)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "image %s: the registry %s cannot be reached", c.text, c.ref.Host)
	}
	return resp, nil
}

func (c *registryCall) digest(ctx context.Context, reference string) (string, error) {
	resp, err := c.do(ctx, http.MethodHead, reference)
	if err != nil {
		return "", err
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		if params, ok := challenge(resp.Header.Values("WWW-Authenticate")); ok {
			if err := c.fetchToken(ctx, params); err != nil {
				return "", err
			}
			if resp, err = c.do(ctx, http.MethodHead, reference); err != nil {
				return "", err
			}
			resp.Body.Close()
		}
	}
	if err := c.status(resp); err != nil {
		return "", err
	}
	if d := resp.Header.Get("Docker-Content-Digest"); d != "" {
		if !validDigest(d) {
			return "", fault.New(fault.Unavailable, "image %s: the registry %s gave a malformed digest", c.text, c.ref.Host)
		}
		return d, nil
	}
	if resp, err = c.do(ctx, http.MethodGet, reference); err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if err := c.status(resp); err != nil {
		return "", err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
	if err != nil || len(body) > maxManifest {
		return "", fault.Wrap(fault.Unavailable, err, "image %s: the manifest could not be read whole", c.text)
	}
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

func (c *registryCall) status(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "no such image: %s", c.text)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(fault.Denied, "image %s: the registry %s refused access (%s); check the login for it", c.text, c.ref.Host, resp.Status)
	}
	return fault.New(fault.Unavailable, "image %s: the registry %s answered %s", c.text, c.ref.Host, resp.Status)
}

var challengeParam = regexp.MustCompile(`([a-zA-Z_]+)="([^"]*)"`)

// challenge reads a Bearer challenge.
func challenge(headers []string) (map[string]string, bool) {
	for _, h := range headers {
		scheme, rest, _ := strings.Cut(strings.TrimSpace(h), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			continue
		}
		params := map[string]string{}
		for _, m := range challengeParam.FindAllStringSubmatch(rest, -1) {
			params[strings.ToLower(m[1])] = m[2]
		}
		return params, params["realm"] != ""
	}
	return nil, false
}

func (c *registryCall) fetchToken(ctx context.Context, params map[string]string) error {
	realm, err := url.Parse(params["realm"])
	if err != nil || realm.Host == "" || realm.Scheme != "https" && !(realm.Scheme == "http" && IsLoopback(realm.Host)) {
		return fault.New(fault.Unavailable, "image %s: the registry %s names no usable token service", c.text, c.ref.Host)
	}
	q := realm.Query()
	for k, v := range params {
		if k != "realm" {
			q.Set(k, v)
		}
	}
	realm.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, realm.String(), nil)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "image %s", c.text)
	}
	if c.auth != nil {
		req.SetBasicAuth(c.auth.Username, c.auth.Password)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "image %s: the token service %s cannot be reached", c.text, realm.Host)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return fault.New(fault.Denied, "image %s: the token service %s refused access (%s); check the login", c.text, realm.Host, resp.Status)
	case resp.StatusCode != http.StatusOK:
		return fault.New(fault.Unavailable, "image %s: the token service %s answered %s", c.text, realm.Host, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxToken))
	if err == nil {
		if o, perr := doc.ParseObject(body, doc.Options{}); perr == nil {
			if c.bearer = o.Str("token"); c.bearer == "" {
				c.bearer = o.Str("access_token")
			}
		}
	}
	if c.bearer == "" {
		return fault.New(fault.Unavailable, "image %s: the token service %s gave no token", c.text, realm.Host)
	}
	return nil
}
