package image

import (
	"context"
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/secret"
)

// DefaultSecretKey is the secret that holds registry logins unless configured otherwise.
const DefaultSecretKey = "registry_auths"

// SecretCredentials reads logins from one secret: the text of a Docker configuration file, or its `auths` table alone. It
// is read again at every call, so that rotated passwords are taken up. Credential helpers in it are ignored.
type SecretCredentials struct {
	Secrets secret.Store
	Key     string // "" = DefaultSecretKey
}

// For returns the login for host. A missing secret, or one without the host, gives nil. A malformed one is Invalid and names
// the secret and the host, never a value.
func (c SecretCredentials) For(ctx context.Context, host string) (*Auth, error) {
	key := c.Key
	if key == "" {
		key = DefaultSecretKey
	}
	text, there, err := c.Secrets.Get(ctx, key)
	if err != nil {
		return nil, fault.At(err, "registry logins")
	}
	if !there {
		return nil, nil
	}
	bad := func(what string) error {
		return fault.New(fault.Invalid, "secret %q, login for %s: %s", key, host, what).WithClass("ConfigError")
	}
	// The parser's own message could quote the text.
	all, perr := doc.ParseObject([]byte(text), doc.Options{Strict: true})
	if perr != nil {
		return nil, bad("the text of a Docker configuration (a JSON object with auths) is needed")
	}
	if auths, nested := all.Get("auths"); nested {
		var ok bool
		if all, ok = auths.(*doc.Object); !ok {
			return nil, bad("auths must be an object")
		}
	}
	for _, k := range all.Keys() {
		if authHost(k) != host {
			continue
		}
		entry, ok := all.Value(k).(*doc.Object)
		if !ok {
			return nil, bad("the entry must be an object")
		}
		user, password, what := login(entry)
		if what != "" {
			return nil, bad(what)
		}
		return &Auth{Registry: host, Username: user, Password: password}, nil
	}
	return nil, nil
}

// authHost reads the key of an auths entry, which may be a URL.
func authHost(k string) string {
	if _, rest, ok := strings.Cut(k, "://"); ok {
		k = rest
	}
	k, _, _ = strings.Cut(k, "/")
	h, err := NormalizeHost(k)
	if err != nil {
		return ""
	}
	return h
}

func login(entry *doc.Object) (user, password, problem string) {
	if v, there := entry.Get("auth"); there && v != "" && v != nil {
		s, ok := v.(string)
		if !ok {
			return "", "", "auth must be text"
		}
		raw, err := base64.StdEncoding.Strict().DecodeString(s)
		user, password, found := strings.Cut(string(raw), ":")
		if err != nil || !utf8.Valid(raw) || !found {
			return "", "", "auth must be the base64 form of user:password"
		}
		return user, password, ""
	}
	user, ok1 := entry.Value("username").(string)
	password, ok2 := entry.Value("password").(string)
	if !ok1 || !ok2 {
		return "", "", "auth, or username and password, is needed"
	}
	return user, password, ""
}
