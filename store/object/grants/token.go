package grants

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// The operations a token allows.
const (
	opGet  = "get"
	opPut  = "put"
	opPost = "post"
)

const tokenVersion = "v1"

// claims is what a token allows. Its fields stand in this order, absent ones left out.
type claims struct {
	Op      string  `json:"op"`
	Store   string  `json:"s"`
	Expires int64   `json:"exp"`
	ID      string  `json:"id"`
	Key     *string `json:"k,omitempty"`
	Prefix  *string `json:"p,omitempty"`
	Max     *int64  `json:"max,omitempty"`
	Type    *string `json:"ct,omitempty"`
}

var encoding = base64.RawURLEncoding

// sign returns v1.<payload>.<mac>.
func (c claims) sign(key []byte) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(c) // strings and integers
	text := tokenVersion + "." + encoding.EncodeToString(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return text + "." + encoding.EncodeToString(mac(key, text))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// verify returns what a token allows now; ok is false for one that is not ours, tampered with, expired, or not whole.
func verify(key []byte, token string, now time.Time) (c claims, ok bool) {
	i := strings.LastIndexByte(token, '.')
	payload, is1 := strings.CutPrefix(token, tokenVersion+".")
	if !is1 || i < len(tokenVersion)+1 {
		return c, false
	}
	payload = payload[:i-len(tokenVersion)-1]
	given, err := encoding.DecodeString(token[i+1:])
	if err != nil || !hmac.Equal(given, mac(key, token[:i])) {
		return c, false
	}
	text, err := encoding.DecodeString(payload)
	if err != nil {
		return c, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(&c) != nil {
		return c, false
	}
	return c, c.whole() && c.Expires > now.Unix()
}

// whole reports whether the claims fit their operation.
func (c claims) whole() bool {
	sized := c.Max != nil && *c.Max >= 0
	switch c.Op {
	case opGet:
		return c.Key != nil && c.Prefix == nil && c.Type == nil
	case opPut:
		return c.Key != nil && c.Prefix == nil && c.Type != nil && sized
	case opPost:
		return c.Key == nil && c.Prefix != nil && (*c.Prefix == "" || strings.HasSuffix(*c.Prefix, "/")) && c.Type == nil && sized
	}
	return false
}
