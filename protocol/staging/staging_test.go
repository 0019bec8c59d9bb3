package staging_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentenv/protocol/staging"
)

const id = "abcdefghijklmnopqrstuvwxyz012345"

type client struct {
	t    *testing.T
	base string
	dir  string
}

func serve(t *testing.T, limit int64) client {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "staging")
	s, err := staging.Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(staging.Handler(s))
	t.Cleanup(func() {
		server.Close()
		if left, _ := os.ReadDir(filepath.Join(dir, "incoming")); len(left) > 0 {
			t.Errorf("%d files are still on their way", len(left))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return client{t, server.URL + staging.Endpoint + "/", dir}
}

func (c client) do(method, path string, body io.Reader, headers ...string) (int, map[string]any, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	var o map[string]any
	_ = json.Unmarshal(text, &o)
	return resp.StatusCode, o, string(text)
}

// unsized hides the length of a body.
type unsized struct{ io.Reader }

func TestObjects(t *testing.T) {
	t.Parallel()
	c := serve(t, 100)
	status, o, _ := c.do("PUT", id+"/a/b", strings.NewReader("hello"))
	if status != 201 || o["size_bytes"] != 5.0 || o["sha256"] != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Fatalf("%d %v", status, o)
	}
	first := o["etag"]
	if status, _, text := c.do("GET", id+"/a/b", nil); status != 200 || text != "hello" {
		t.Errorf("%d %q", status, text)
	}
	_, o, _ = c.do("PUT", id+"/a/b", unsized{strings.NewReader("again")})
	if o["etag"] == first {
		t.Error("another object has the same tag")
	}
	c.do("PUT", id+"/c", strings.NewReader(""))
	if _, o, _ := c.do("GET", id+"/", nil); fmt.Sprint(o["objects"]) != fmt.Sprintf("[map[etag:%v path:a/b size_bytes:5] map[etag:%v path:c size_bytes:0]]", o["objects"].([]any)[0].(map[string]any)["etag"], o["objects"].([]any)[1].(map[string]any)["etag"]) {
		t.Error(o)
	}
	if status, _, _ := c.do("DELETE", id+"/a/b", nil, "If-Match", first.(string)); status != 412 {
		t.Errorf("a stale tag: %d", status)
	}
	if status, _, _ := c.do("DELETE", id+"/a/b", nil, "If-Match", o["etag"].(string)); status != 204 {
		t.Errorf("the tag: %d", status)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "objects", id, "a")); !os.IsNotExist(err) {
		t.Error("an empty folder stays")
	}
	for range 2 {
		if status, _, _ := c.do("DELETE", id+"/", nil); status != 204 {
			t.Errorf("delete all: %d", status)
		}
	}
	if _, o, _ := c.do("GET", id+"/", nil); fmt.Sprint(o["objects"]) != "[]" {
		t.Error(o)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	c := serve(t, 100)
	c.do("PUT", id+"/x", strings.NewReader("x"))
	c.do("PUT", id+"/d/y", strings.NewReader("y"))
	for _, f := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", id + "/none", "", 404}, {"DELETE", id + "/none", "", 404}, {"GET", id + "/d", "", 404}, {"PUT", "short/x", "x", 404}, {"GET", "short/", "", 404},
		{"PUT", id + "/x/below", "x", 409}, {"PUT", id + "/d", "x", 409}, {"PUT", id + "/a//b", "x", 400}, {"PUT", id + "/a/%2e%2e/b", "x", 400}, {"PUT", id + "/a%5Cb", "x", 400},
		{"PUT", id + "/a%00b", "x", 400}, {"PUT", id + "/" + strings.Repeat("p", 1024), "x", 400}, {"PUT", id + "/", "x", 405}, {"PATCH", id + "/x", "", 405},
		{"PUT", id + "/big", strings.Repeat("b", 101), 413}, {"POST", id + "/", "x", 400},
	} {
		if status, o, text := c.do(f.method, f.path, strings.NewReader(f.body)); status != f.want || o["detail"] == nil || strings.Contains(text, c.dir) {
			t.Errorf("%s %.60s: %d %s, want %d", f.method, f.path, status, text, f.want)
		}
	}
	if _, o, _ := c.do("GET", id+"/", nil); len(o["objects"].([]any)) != 2 {
		t.Error(o)
	}
}

// TestRoom counts what is stored and what is on its way, and gives back what did not land.
func TestRoom(t *testing.T) {
	t.Parallel()
	c := serve(t, 10)
	put := func(name, body string, sized bool) int {
		var r io.Reader = strings.NewReader(body)
		if !sized {
			r = unsized{r}
		}
		status, _, _ := c.do("PUT", id+"/"+name, r)
		return status
	}
	for _, s := range []struct {
		name, body string
		sized      bool
		want       int
	}{
		{"a", "12345678901", true, 413}, {"a", "12345678901", false, 413}, {"a", "1234567", true, 201}, {"a", "1234", true, 413}, // old and new need room while the new one lands
		{"a", "123", true, 201}, {"b", "1234567", false, 201}, {"c", "1", true, 413}, {"c", "", true, 201},
	} {
		if got := put(s.name, s.body, s.sized); got != s.want {
			t.Errorf("%s of %d bytes: %d, want %d", s.name, len(s.body), got, s.want)
		}
	}
	again, err := staging.Open(c.dir, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Put(id+"/d", strings.NewReader("1"), 1); err == nil {
		t.Error("what was there before does not count")
	}
}

// TestABodyThatBreaks stores nothing.
func TestABodyThatBreaks(t *testing.T) {
	t.Parallel()
	s, err := staging.Open("", 10)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, c := range map[string]struct {
		body io.Reader
		size int64
	}{"shorter": {strings.NewReader("123"), 4}, "longer": {strings.NewReader("12345"), 4}, "broken": {io.MultiReader(strings.NewReader("1"), &broken{}), -1}} {
		if _, err := s.Put(id+"/"+name, c.body, c.size); err == nil {
			t.Errorf("%s was stored", name)
		}
	}
	if _, err := s.Put(id+"/all", strings.NewReader("1234567890"), 10); err != nil {
		t.Errorf("room is lost: %v", err)
	}
}

type broken struct{}

func (*broken) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestForms(t *testing.T) {
	t.Parallel()
	c := serve(t, 1<<20)
	form := func(fields ...string) (string, []byte) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for i := 0; i < len(fields); i += 2 {
			if fields[i] == "file" {
				f, _ := w.CreateFormFile("file", "f")
				_, _ = io.WriteString(f, fields[i+1])
				continue
			}
			_ = w.WriteField(fields[i], fields[i+1])
		}
		_ = w.Close()
		return w.FormDataContentType(), b.Bytes()
	}
	many := []string{"key", "k"}
	for i := range 40 {
		many = append(many, fmt.Sprint("f", i), "v")
	}
	for name, f := range map[string]struct {
		fields []string
		want   int
	}{
		"whole": {[]string{"policy", "p", "key", "a/b", "file", "hello", "after", "x"}, 201}, "no key": {[]string{"file", "x"}, 400}, "key after": {[]string{"file", "x", "key", "a"}, 400},
		"no file": {[]string{"key", "a"}, 400}, "a bad key": {[]string{"key", "../a", "file", "x"}, 400}, "too many fields": {append(many, "file", "x"), 400},
		"a long field": {[]string{"x", strings.Repeat("v", 65<<10), "key", "a", "file", "x"}, 400},
	} {
		kind, body := form(f.fields...)
		if status, _, text := c.do("POST", id+"/in/", bytes.NewReader(body), "Content-Type", kind); status != f.want {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if _, _, text := c.do("GET", id+"/in/a/b", nil); text != "hello" {
		t.Errorf("%q", text)
	}
	kind, body := form("key", "cut", "file", strings.Repeat("x", 1000))
	if status, _, _ := c.do("POST", id+"/in/", bytes.NewReader(body[:len(body)-200]), "Content-Type", kind); status != 400 {
		t.Errorf("a form that is cut: %d", status)
	}
}

// TestManyAtOnce writes one object from many sides: each reader sees one of them whole.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	c := serve(t, 1<<20)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				c.do("PUT", id+"/x", strings.NewReader(strings.Repeat(fmt.Sprint(i), 1000)))
				if status, _, text := c.do("GET", id+"/x", nil); status != 200 || text != strings.Repeat(text[:1], 1000) {
					t.Errorf("%d, %d bytes", status, len(text))
				}
			}
		})
	}
	all.Wait()
	if _, o, _ := c.do("GET", id+"/", nil); len(o["objects"].([]any)) != 1 {
		t.Error(o)
	}
	c.do("DELETE", id+"/", nil)
	if status, _, _ := c.do("PUT", id+"/y", strings.NewReader(strings.Repeat("y", 1<<20))); status != 201 {
		t.Errorf("room is lost: %d", status)
	}
}

func FuzzForm(f *testing.F) {
	f.Add("--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--b--\r\n")
	s, err := staging.Open("", 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	h := staging.Handler(s)
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, staging.Endpoint+"/"+id+"/", strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == 500 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
