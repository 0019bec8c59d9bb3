package grants

import (
	"strings"
	"testing"
	"time"
)

func of[T any](v T) *T { return &v }

// TestTokensAsTheReferenceMakesThem signs a token whose form is known.
func TestTokensAsTheReferenceMakesThem(t *testing.T) {
	t.Parallel()
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(i)
	}
	c := claims{Op: opPut, Store: "15d6b1671e7cfd38", Expires: 1900000000, ID: "0123456789abcdef", Key: of("k"), Max: of(int64(10)), Type: of("text/plain")}
	const want = "v1.eyJvcCI6InB1dCIsInMiOiIxNWQ2YjE2NzFlN2NmZDM4IiwiZXhwIjoxOTAwMDAwMDAwLCJpZCI6IjAxMjM0NTY3ODlhYmNkZWYiLCJrIjoiayIsIm1heCI6MTAsImN0IjoidGV4dC9wbGFpbiJ9.QkL1X24BVh0KhVX2vk5ydZVdGMpuLvivzvoQ2_tCPuY"
	token := c.sign(key)
	if token != want {
		t.Errorf("%s", token)
	}
	got, ok := verify(key, token, time.Unix(1899999999, 0))
	if !ok || *got.Key != "k" || *got.Max != 10 || *got.Type != "text/plain" {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := verify(key, token, time.Unix(1900000000, 0)); ok {
		t.Error("a token is good at the moment it expires")
	}
	for _, bad := range []string{"", "v1.", "v1..", strings.Replace(token, "v1.", "v2.", 1), token + "x", strings.Replace(token, ".eyJ", ".eyK", 1), token[:len(token)-5], "v1." + token} {
		if _, ok := verify(key, bad, time.Unix(0, 0)); ok {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, c := range []claims{
		{Op: opGet, Prefix: of("p/")}, {Op: opGet, Key: of("k"), Type: of("a/b")}, {Op: opPut, Key: of("k"), Type: of("a/b")}, {Op: opPut, Key: of("k"), Max: of(int64(-1)), Type: of("a/b")},
		{Op: opPut, Key: of("k"), Max: of(int64(1))}, {Op: opPost, Prefix: of("p"), Max: of(int64(1))}, {Op: opPost, Key: of("k"), Max: of(int64(1))}, {Op: "list", Key: of("k")},
	} {
		c.Expires = 10
		if _, ok := verify(key, c.sign(key), time.Unix(0, 0)); ok {
			t.Errorf("%+v is taken", c)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("v1.eyJ9.x")
	f.Fuzz(func(t *testing.T, token string) {
		if _, ok := verify([]byte("key"), token, time.Unix(0, 0)); ok {
			t.Errorf("%q is taken", token)
		}
	})
}

func TestHosts(t *testing.T) {
	t.Parallel()
	for host, ok := range map[string]bool{"localhost": true, "LocalHost.": true, "a.localhost": true, "host.docker.internal": true, "x.host.docker.internal": true, "10.1.2.3": true, "172.17.0.1": true,
		"fd00::1": true, "::1": true, "example.com": false, "8.8.8.8": false, "notlocalhost": false, "172.32.0.1": false} {
		if err := CheckHosts(host, ""); (err == nil) != ok {
			t.Errorf("%s: %v", host, err)
		}
	}
	if CheckHosts("", "name") == nil || CheckHosts("", "0.0.0.0") != nil {
		t.Error("a bind host is an address")
	}
}
