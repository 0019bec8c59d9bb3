package grants_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/protocol/transfer"
	"agentenv/store/object"
	"agentenv/store/object/grants"
	"agentenv/store/object/localfs"
)

type rig struct {
	*grants.Grants
	server *grants.Server
	store  object.Store
	http   *http.Client
	dir    string
}

func newRig(t *testing.T, now func() time.Time) rig {
	t.Helper()
	store, err := localfs.New(filepath.Join(t.TempDir(), "objects"))
	must(t, err)
	dir := filepath.Join(t.TempDir(), "tls")
	server, err := grants.New(grants.Options{Dir: dir, Advertise: "localhost", Bind: "127.0.0.1", Now: now})
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	return rig{server.Of("store", store), server, store, trusting(t, server), dir}
}

// trusting returns a client that believes what containers are given to believe.
func trusting(t *testing.T, server *grants.Server) *http.Client {
	t.Helper()
	trust, err := server.Trust()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(trust, "ca-bundle.pem"))
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r rig) url(t *testing.T, key string) string {
	t.Helper()
	u, err := r.store.URL(key)
	must(t, err)
	return u
}

func (r rig) content(t *testing.T, key string) string {
	t.Helper()
	body, err := r.store.Open(t.Context(), r.url(t, key))
	if err != nil {
		return err.Error()
	}
	defer body.Close()
	b, _ := io.ReadAll(body)
	return string(b)
}

func (r rig) do(t *testing.T, method, url string, body io.Reader, headers ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	must(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.http.Do(req)
	must(t, err)
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(b)
}

// TestThroughTheClient moves objects by all three forms of grants, as an agent does.
func TestThroughTheClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	c := transfer.NewClient(transfer.Options{HTTP: r.http})
	defer c.Close()
	write, err := r.Write(t.Context(), r.url(t, "a/b.txt"), "text/plain", 100, time.Hour)
	must(t, err)
	for _, content := range []string{"hello", "again"} { // over itself: an attempt may be repeated
		up, err := c.Upload(t.Context(), transfer.WriteObject{MediaType: "text/plain", MaxBytes: 100, Write: write}, transfer.Bytes([]byte(content)))
		if err != nil || up.Size != 5 || r.content(t, "a/b.txt") != content {
			t.Fatalf("%+v, %v, %q", up, err, r.content(t, "a/b.txt"))
		}
	}
	read, err := r.Read(t.Context(), r.url(t, "a/b.txt"), 0)
	must(t, err)
	if left := time.Until(read.ExpiresAt); left < 11*time.Hour || left > 12*time.Hour {
		t.Errorf("it lasts %s", left)
	}
	target := filepath.Join(t.TempDir(), "out")
	_, err = c.Download(t.Context(), transfer.ReadObject{MediaType: "text/plain", MaxBytes: 100, Size: 5, Read: read}, target)
	must(t, err)
	if b, _ := os.ReadFile(target); string(b) != "again" {
		t.Errorf("%q", b)
	}
	policy, until, err := r.Policy(t.Context(), r.url(t, "logs/"), 100, time.Hour)
	must(t, err)
	n := c.Namespace(transfer.NamespaceGrant{RootPath: "logs/run", ExpiresAt: until, MaxObjects: 10, MaxObjectBytes: 100, MaxTotal: 1000, Write: policy})
	must(t, n.Put(t.Context(), "d/000001.tgz", transfer.Bytes([]byte("tar"))))
	if got := r.content(t, "logs/run/d/000001.tgz"); got != "tar" {
		t.Error(got)
	}
	info, err := r.store.Stat(t.Context(), r.url(t, "a/b.txt"))
	if err != nil || info.ContentType != "text/plain" {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	_, err := r.store.Put(t.Context(), object.Item{Key: "o", ContentType: "text/html", Size: 5, Body: strings.NewReader("hello")}, false)
	must(t, err)
	read, err := r.Read(t.Context(), r.url(t, "o"), time.Hour)
	must(t, err)
	none, err := r.Read(t.Context(), r.url(t, "none"), time.Hour)
	must(t, err)
	write, err := r.Write(t.Context(), r.url(t, "w"), "a/b", 5, time.Hour)
	must(t, err)
	policy, _, err := r.Policy(t.Context(), r.url(t, "p/"), 5, time.Hour)
	must(t, err)
	form := func(text string) io.Reader { return strings.NewReader(strings.ReplaceAll(text, "\n", "\r\n")) }
	field := func(k, v string) string {
		return "--b\nContent-Disposition: form-data; name=\"" + k + "\"\n\n" + v + "\n"
	}
	file := func(v string) string {
		return "--b\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\n\n" + v + "\n"
	}
	const multi = "multipart/form-data; boundary=b"
	for _, c := range []struct {
		method, url string
		body        io.Reader
		kind        string
		want        int
	}{
		{"GET", read.URL, nil, "", 200}, {"HEAD", read.URL, nil, "", 200}, {"GET", none.URL, nil, "", 404}, {"HEAD", none.URL, nil, "", 404},
		{"GET", read.URL + "x", nil, "", 403}, {"GET", write.URL, nil, "", 403}, {"PUT", read.URL, strings.NewReader("x"), "a/b", 403}, {"DELETE", read.URL, nil, "", 405},
		{"GET", strings.Replace(read.URL, "/v1/grants/", "/v2/", 1), nil, "", 404},
		{"PUT", write.URL, strings.NewReader("12345"), "a/b", 200}, {"PUT", write.URL, strings.NewReader("123456"), "a/b", 400}, {"PUT", write.URL, unsized{strings.NewReader("123456")}, "a/b", 400},
		{"PUT", write.URL, strings.NewReader("1"), "a/c", 403}, {"PUT", write.URL, strings.NewReader("1"), "", 403},
		{"POST", policy.URL, strings.NewReader("x"), "text/plain", 400}, {"POST", policy.URL, strings.NewReader("x"), multi, 400},
		{"POST", policy.URL, form(field("key", "p/x") + file("hello") + "--b--\n"), multi, 204}, {"POST", policy.URL, form(field("key", "p/y") + file("hello")), multi, 400},
		{"POST", policy.URL, form(file("hello") + field("key", "p/y") + "--b--\n"), multi, 400}, {"POST", policy.URL, form(field("key", "q/y") + file("hello") + "--b--\n"), multi, 403},
		{"POST", policy.URL, form(field("key", "p/../y") + file("hello") + "--b--\n"), multi, 403}, {"POST", policy.URL, form(field("key", "p/y") + file("123456") + "--b--\n"), multi, 400},
		{"POST", policy.URL, form(field("key", "p/y") + file("hello") + field("after", "x") + "--b--\n"), multi, 204},
		{"POST", policy.URL, form(strings.Repeat(field("f", "x"), 40) + field("key", "p/y") + file("x") + "--b--\n"), multi, 400},
	} {
		status, headers, text := r.do(t, c.method, c.url, c.body, "Content-Type", c.kind)
		if status != c.want || status >= 400 && c.method != "HEAD" && (!strings.HasPrefix(headers.Get("Content-Type"), "text/plain") || strings.Contains(text, "v1.")) {
			t.Errorf("%s …%s: %d %q, want %d", c.method, c.kind, status, text, c.want)
		}
		if status == 405 && headers.Get("Allow") != "GET, HEAD, PUT, POST" {
			t.Error(headers)
		}
	}
	if _, headers, text := r.do(t, "GET", read.URL, nil, "Range", "bytes=1-2"); text != "hello" || headers.Get("Content-Type") != "text/html" || headers.Get("Content-Length") != "5" {
		t.Errorf("%v %q", headers, text)
	}
	keys, err := r.store.List(t.Context(), "")
	if err != nil || fmt.Sprint(keys) != "[o p/x p/y w]" {
		t.Errorf("%v, %v", keys, err)
	}
}

type unsized struct{ io.Reader }

// TestNamesNobodyMayWrite are the store's own.
func TestNamesNobodyMayWrite(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	policy, _, err := r.Policy(t.Context(), r.url(t, "x/")[:len(r.url(t, "x/"))-3], 5, time.Hour)
	must(t, err)
	for _, key := range []string{".agentenv-meta/x", ".agentenv-tmp/x", ".gitignore"} {
		body := "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\n" + key + "\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--b--\r\n"
		if status, _, text := r.do(t, "POST", policy.URL, strings.NewReader(body), "Content-Type", "multipart/form-data; boundary=b"); status != 403 {
			t.Errorf("%s: %d %s", key, status, text)
		}
	}
}

func TestGrantsThatEnd(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := time.Now()
	r := newRig(t, func() time.Time { mu.Lock(); defer mu.Unlock(); return now })
	g, err := r.Read(t.Context(), r.url(t, "o"), time.Minute)
	must(t, err)
	mu.Lock()
	now = now.Add(61 * time.Second)
	mu.Unlock()
	if status, _, _ := r.do(t, "GET", g.URL, nil); status != 403 {
		t.Errorf("after its time: %d", status)
	}
	for lifetime, kind := range map[time.Duration]fault.Kind{-1: fault.Invalid, grants.MaxLifetime + 1: fault.Unavailable} {
		if _, err := r.Read(t.Context(), r.url(t, "o"), lifetime); !fault.Is(err, kind) {
			t.Errorf("%s: %v", lifetime, err)
		}
	}
	if _, err := r.Read(t.Context(), "file:///elsewhere", 0); !fault.Is(err, fault.Invalid) {
		t.Errorf("another store's: %v", err)
	}
	must(t, r.server.Close())
	if _, err := r.Read(t.Context(), r.url(t, "o"), 0); !fault.Is(err, fault.Unavailable) {
		t.Errorf("after the end: %v", err)
	}
}

// TestOneAuthority is agreed on by servers that start at the same time, used again by the next, and replaced when it is none.
func TestOneAuthority(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	file := filepath.Join(dir, "ca.key.pem")
	open := func() string {
		s, err := grants.New(grants.Options{Dir: dir})
		must(t, err)
		trust, err := s.Trust()
		must(t, err)
		return trust
	}
	var all sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		all.Go(func() { got[i] = open() })
	}
	all.Wait()
	for _, g := range got {
		if g != got[0] {
			t.Errorf("%v", got)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 2 {
		t.Errorf("%v", left)
	}
	must(t, os.WriteFile(file, []byte("broken"), 0o600))
	if again := open(); again == got[0] {
		t.Error("a broken authority is used")
	}
	late, err := grants.New(grants.Options{Dir: dir, Now: func() time.Time { return time.Now().AddDate(5, 0, -20) }})
	must(t, err)
	before, _ := os.ReadFile(file)
	if _, err := late.Trust(); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(file); bytes.Equal(before, after) {
		t.Error("an authority that ends soon is used")
	}
}

// TestWhileWritten reads an object that is written all the while: each answer is one whole write with its own type.
func TestWhileWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	put := func(i int) {
		text := strings.Repeat(fmt.Sprint(i%10), 1000+i%10)
		_, err := r.store.Put(t.Context(), object.Item{Key: "o", ContentType: fmt.Sprint("n/", i%10), Size: -1, Body: strings.NewReader(text)}, true)
		must(t, err)
	}
	put(0)
	g, err := r.Read(t.Context(), r.url(t, "o"), 0)
	must(t, err)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				put(i)
			}
		}
	}()
	for range 30 {
		status, headers, text := r.do(t, "GET", g.URL, nil)
		if status == 500 {
			continue // written too often to be read
		}
		if want := strings.Repeat(text[:1], 1000+int(text[0]-'0')); text != want || headers.Get("Content-Type") != "n/"+text[:1] {
			t.Errorf("%d, %d bytes of %q, %s", status, len(text), text[:1], headers.Get("Content-Type"))
		}
	}
	close(stop)
	<-done
}

// TestALaterProcess takes up a permission to write below a path that an earlier one gave, and no other.
func TestALaterProcess(t *testing.T) {
	t.Parallel()
	store, err := localfs.New(filepath.Join(t.TempDir(), "objects"))
	must(t, err)
	dir := filepath.Join(t.TempDir(), "tls")
	process := func(key string) (*grants.Server, rig) {
		server, err := grants.New(grants.Options{Dir: dir, Advertise: "localhost", Bind: "127.0.0.1", Lasting: func() ([]byte, error) { return []byte(key), nil }})
		must(t, err)
		t.Cleanup(func() { must(t, server.Close()) })
		return server, rig{server.Of("store", store), server, store, trusting(t, server), dir}
	}
	first, r := process("the key of the state folder")
	below, ends, err := r.Policy(t.Context(), r.url(t, "log/"), 100, time.Hour)
	must(t, err)
	read, err := r.Read(t.Context(), r.url(t, "log/1"), time.Hour)
	must(t, err)
	u, err := url.Parse(below.URL)
	must(t, err)
	port, err := strconv.Atoi(u.Port())
	must(t, err)
	put := func(r rig, name string) error {
		c := transfer.NewClient(transfer.Options{HTTP: r.http})
		defer c.Close()
		return c.Namespace(transfer.NamespaceGrant{RootPath: "log", MaxObjects: 10, MaxObjectBytes: 100, MaxTotal: 1000, ExpiresAt: ends, Write: below}).Put(t.Context(), name, transfer.Bytes([]byte("x")))
	}
	must(t, put(r, "000001"))
	_, busy := process("the key of the state folder")
	if err := busy.Resume(t.Context(), port); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), u.Port()) {
		t.Errorf("while the first one lives: %v", err)
	}
	must(t, first.Close())
	_, other := process("another key")
	must(t, other.Resume(t.Context(), port))
	if err := put(other, "000002"); err == nil {
		t.Error("it is taken up with another key")
	}
	must(t, other.server.Close())
	_, later := process("the key of the state folder")
	must(t, later.Resume(t.Context(), port))
	must(t, later.Resume(t.Context(), port))
	must(t, put(later, "000003"))
	if got := later.content(t, "log/000003"); got != "x" {
		t.Error(got)
	}
	if status, _, _ := later.do(t, "GET", read.URL, nil); status != 403 {
		t.Errorf("a permission to read outlived its process: %d", status)
	}
}
