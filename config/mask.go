package config

import (
	"regexp"
	"strings"

	"agentenv/store/doc"
)

const masked = "***"

// secretKey reports whether a key looks like one that holds a secret.
func secretKey(key string) bool {
	key = strings.ReplaceAll(strings.ToLower(key), "-", "_")
	for _, word := range []string{"password", "passwd", "passphrase", "secret", "token", "credential", "api_key", "private_key", "auth", "bearer", "headers"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}

var userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#]*@`)

// mask returns a copy of v without secrets: everything under a secret-shaped key, and user names and passwords in URLs.
// References stay, but for their defaults, to which the same rules apply.
func mask(v any, secret bool) any {
	switch v := v.(type) {
	case nil:
		return nil
	case *doc.Object:
		out := &doc.Object{}
		for _, k := range v.Keys() {
			out.Set(k, mask(v.Value(k), secret || secretKey(k)))
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = mask(x, secret)
		}
		return out
	case string:
		return maskText(v, secret)
	}
	if secret {
		return masked
	}
	return v
}

func maskText(s string, secret bool) string {
	if prefix, name, fallback, hasDefault, is := cutRef(s); is {
		if !hasDefault {
			return s
		}
		return prefix + name + "?" + maskText(fallback, secret)
	}
	if secret {
		return masked
	}
	return userinfo.ReplaceAllString(s, "${1}"+masked+"@")
}

// maskSeam masks the table of a seam. The values of a secret store are secrets whatever their names are.
func maskSeam(s seam, v any) any {
	out := mask(v, false)
	t, _ := out.(*doc.Object)
	config := t.Obj("config")
	if values, ok := config.Get("values"); ok && s.name == "secret" {
		config.Set("values", mask(values, true))
	}
	return out
}
