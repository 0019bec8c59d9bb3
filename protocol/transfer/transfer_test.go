package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/protocol/transfer"
)

// storeServer is an object store behind HTTPS that answers what the script says, else keeps and gives objects.
type storeServer struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string][]byte
	types   map[string]string
	headers http.Header
	script  []func(http.ResponseWriter, *http.Request)
	calls   int
}

func serve(t *testing.T) *storeServer {
	t.Helper()
	s := &storeServer{objects: map[string][]byte{}, types: map[string]string{}}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *storeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.calls++
	s.headers = r.Header.Clone()
	if len(s.script) > 0 {
		answer := s.script[0]
		s.script = s.script[1:]
		s.mu.Unlock()
		answer(w, r)
		return
	}
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodPut:
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.objects[r.URL.Path], s.types[r.URL.Path] = b, r.Header.Get("Content-Type")
	case http.MethodPost:
		if err := r.ParseMultipartForm(1 << 20); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		f, _, err := r.FormFile("file")
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		b, _ := io.ReadAll(f)
		s.objects[r.FormValue("key")], s.types[r.FormValue("key")] = b, r.FormValue("Content-Type")
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet:
		b, ok := s.objects[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(b)
	}
}

func status(code int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func (s *storeServer) client(t *testing.T, o transfer.Options) *transfer.Client {
	t.Helper()
	o.HTTP = s.Client()
	c := transfer.NewClient(o)
	t.Cleanup(c.Close)
	return c
}

var later = time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *storeServer) write(most int64) transfer.WriteObject {
	return transfer.WriteObject{MediaType: "text/plain", MaxBytes: most, Write: transfer.Grant{Kind: transfer.KindPut, URL: s.URL + "/o?token=hidden",
		ExpiresAt: later, Headers: map[string]string{"X-Grant": "hidden"}}}
}

func (s *storeServer) read(most int64) transfer.ReadObject {
	return transfer.ReadObject{MediaType: "text/plain", MaxBytes: most, Size: -1, Read: transfer.Grant{Kind: transfer.KindGet, URL: s.URL + "/o?token=hidden", ExpiresAt: later}}
}

func sum(b string) string {
	h := sha256.Sum256([]byte(b))
	return hex.EncodeToString(h[:])
}

// isCode checks that an error has the code and tells nothing of the grant.
func isCode(t *testing.T, err error, code string, retryable bool) {
	t.Helper()
	e := new(transfer.Error)
	if !errors.As(err, &e) || e.Code != code || e.Retryable != retryable {
		t.Errorf("%v (%+v), want %s, retryable %t", err, e, code, retryable)
		return
	}
	text, _ := json.Marshal(e.JSON())
	if strings.Contains(string(text), "hidden") || strings.Contains(string(text), "127.0.0.1") {
		t.Errorf("it tells of the grant: %s", text)
	}
}

func TestUploadAndDownload(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var log bytes.Buffer
	c := s.client(t, transfer.Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	for _, content := range []string{"", "hello", strings.Repeat("x", 300_000)} {
		file := filepath.Join(t.TempDir(), "f")
		must(t, os.WriteFile(file, []byte(content), 0o600))
		source, err := transfer.File(file)
		must(t, err)
		u, err := c.Upload(t.Context(), s.write(1<<20), source)
		must(t, err)
		if u.Size != int64(len(content)) || u.SHA256 != sum(content) || string(s.objects["/o"]) != content || s.types["/o"] != "text/plain" || s.headers.Get("X-Grant") != "hidden" {
			t.Errorf("%+v, %v", u, s.headers)
		}
		r := s.read(1 << 20)
		r.Size, r.SHA256 = u.Size, u.SHA256
		target := filepath.Join(t.TempDir(), "out")
		if _, err := c.Download(t.Context(), r, target); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(target); string(got) != content {
			t.Errorf("%d bytes came back", len(got))
		}
	}
	if strings.Contains(log.String(), "hidden") || !strings.Contains(log.String(), "<redacted>") {
		t.Errorf("the log: %s", log.String())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWhatTheStoreAnswers has a store that cannot serve for a moment, or refuses.
func TestWhatTheStoreAnswers(t *testing.T) {
	t.Parallel()
	busy, lost := status(503, ""), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		script    []func(http.ResponseWriter, *http.Request)
		code      string
		retryable bool
		calls     int
	}{
		"busy twice":    {script: []func(http.ResponseWriter, *http.Request){busy, busy}, calls: 3},
		"busy for ever": {[]func(http.ResponseWriter, *http.Request){busy, busy, busy, busy}, "transfer_unavailable", true, 3},
		"lost":          {script: []func(http.ResponseWriter, *http.Request){lost}, calls: 2},
		"refused":       {[]func(http.ResponseWriter, *http.Request){status(403, "")}, "transfer_rejected", false, 1},
		"redirected": {[]func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		}}, "transfer_rejected", false, 1},
		"a slow request":        {script: []func(http.ResponseWriter, *http.Request){status(400, "<Error><Code>RequestTimeout</Code></Error>")}, calls: 2},
		"a bad request":         {[]func(http.ResponseWriter, *http.Request){status(400, "<Error><Code>Other</Code></Error>")}, "transfer_rejected", false, 1},
		"too many requests":     {script: []func(http.ResponseWriter, *http.Request){status(429, "")}, calls: 2},
		"timed out at the door": {script: []func(http.ResponseWriter, *http.Request){status(408, "")}, calls: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			s.script = c.script
			_, err := s.client(t, transfer.Options{}).Upload(t.Context(), s.write(100), transfer.Bytes([]byte("hello")))
			switch {
			case c.code != "":
				isCode(t, err, c.code, c.retryable)
			case err != nil || string(s.objects["/o"]) != "hello":
				t.Errorf("%v, %q", err, s.objects["/o"])
			}
			if s.calls != c.calls {
				t.Errorf("%d calls, want %d", s.calls, c.calls)
			}
		})
	}
}

func TestDownloadsThatFail(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.objects["/o"] = []byte("hello")
	c := s.client(t, transfer.Options{})
	short, other, missing := s.read(4), s.read(100), s.read(100)
	other.SHA256 = sum("other")
	sized := s.read(100)
	sized.Size = 4
	missing.Read.URL = s.URL + "/none"
	over := s.read(100)
	over.Read.ExpiresAt = time.Now().Add(-time.Second)
	for _, f := range []struct {
		o    transfer.ReadObject
		code string
	}{{short, "transfer_too_large"}, {other, "integrity_mismatch"}, {sized, "integrity_mismatch"}, {missing, "transfer_rejected"}, {over, "grant_expired"}} {
		dir := t.TempDir()
		target := filepath.Join(dir, "out")
		must(t, os.WriteFile(target, []byte("before"), 0o600))
		_, err := c.Download(t.Context(), f.o, target)
		isCode(t, err, f.code, false)
		left, _ := os.ReadDir(dir)
		if got, _ := os.ReadFile(target); string(got) != "before" || len(left) != 1 {
			t.Errorf("%s: %q, %v", f.code, got, left)
		}
	}
}

// TestADownloadThatBreaks starts anew, and keeps nothing of the broken attempt.
func TestADownloadThatBreaks(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.objects["/o"] = []byte("hello")
	s.script = []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "500")
		_, _ = io.WriteString(w, "HELLO and")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}}
	target := filepath.Join(t.TempDir(), "out")
	_, err := s.client(t, transfer.Options{}).Download(t.Context(), s.read(1000), target)
	if got, _ := os.ReadFile(target); err != nil || string(got) != "hello" {
		t.Errorf("%v, %q", err, got)
	}
}

// TestStandingStill ends a transfer that moves nothing, in each direction.
func TestStandingStill(t *testing.T) {
	t.Parallel()
	s := serve(t)
	still := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	s.script = []func(http.ResponseWriter, *http.Request){still, still, still}
	c := s.client(t, transfer.Options{Idle: 50 * time.Millisecond})
	_, err := c.Upload(t.Context(), s.write(100), transfer.Bytes([]byte("x")))
	isCode(t, err, "transfer_timeout", true)

	s.mu.Lock()
	s.script = []func(http.ResponseWriter, *http.Request){still}
	s.mu.Unlock()
	o := s.write(100)
	o.Write.ExpiresAt = time.Now().Add(300 * time.Millisecond) // it passes while waiting for the next attempt
	_, err = c.Upload(t.Context(), o, transfer.Bytes([]byte("x")))
	isCode(t, err, "transfer_timeout", false)
}

func TestSourcesThatChange(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(t, transfer.Options{})
	for name, real := range map[string]string{"shrunk": "hell", "grown": "hello and more"} {
		source := transfer.Source{Size: 5, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(real)), nil }}
		_, err := c.Upload(t.Context(), s.write(100), source)
		isCode(t, err, "invalid_transfer", false)
		n := c.Namespace(transfer.NamespaceGrant{RootPath: "r", ExpiresAt: later, MaxObjects: 1, MaxObjectBytes: 10, MaxTotal: 10, Write: s.policy()})
		isCode(t, n.Put(t.Context(), name, source), "invalid_transfer", false)
		if err := n.Put(t.Context(), "other", transfer.Bytes([]byte("counted"))); err != nil {
			t.Errorf("%s was counted: %v", name, err)
		}
	}
	if _, err := transfer.File(t.TempDir()); err == nil {
		t.Error("a folder is no file")
	}
	_, err := c.Upload(t.Context(), s.write(3), transfer.Bytes([]byte("four")))
	isCode(t, err, "transfer_too_large", false)
}

func (s *storeServer) policy() transfer.Policy {
	return transfer.Policy{URL: s.URL + "/post", Fields: map[string]string{"policy": "p"}, PathField: "key", FileField: "file"}
}

func TestNamespace(t *testing.T) {
	t.Parallel()
	s := serve(t)
	n := s.client(t, transfer.Options{}).Namespace(transfer.NamespaceGrant{RootPath: "root", ExpiresAt: later, MaxObjects: 2, MaxObjectBytes: 5, MaxTotal: 8, Write: s.policy()})
	put := func(name, content string) error { return n.Put(t.Context(), name, transfer.Bytes([]byte(content))) }
	must(t, put("a", "12345"))
	must(t, put("a", "123")) // over itself: counted once, at its newest size
	must(t, put("d/\"b", "12345"))
	if string(s.objects["root/a"]) != "123" || string(s.objects[`root/d/"b`]) != "12345" || s.types["root/a"] != "application/octet-stream" {
		t.Errorf("%q", s.objects)
	}
	isCode(t, put("c", "1"), "transfer_too_large", false)
	isCode(t, put("a", "123456"), "transfer_too_large", false)
	isCode(t, put("a", "1234"), "transfer_too_large", false)
	for _, bad := range []string{"", "/a", "a/../b", "a//b", "./a", `a\b`, "a\x00"} {
		isCode(t, put(bad, "1"), "invalid_transfer", false)
	}
}

// TestOverLoopback takes the way to the process's own server where the grant is for it, and only a connection that cannot be made leads
// back to the URL.
func TestOverLoopback(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var got []string
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer own.Close()
	port := own.Listener.Addr().(*net.TCPAddr).Port
	c := s.client(t, transfer.Options{})
	o := s.write(100)
	o.Write.URL = s.URL + "/prefix/ext/staging/x"
	o.Write.Headers = map[string]string{"agentenv-staging-path": "/ext/staging/x"}
	_, err := c.Upload(transfer.WithPort(t.Context(), port), o, transfer.Bytes([]byte("hi")))
	isCode(t, err, "transfer_rejected", false)
	if fmt.Sprint(got) != "[/ext/staging/x]" || s.calls != 0 {
		t.Errorf("%v, %d calls of the URL", got, s.calls)
	}
	own.Close()
	for _, ctx := range []context.Context{transfer.WithPort(t.Context(), port), t.Context()} {
		if _, err := c.Upload(ctx, o, transfer.Bytes([]byte("hi"))); err != nil || string(s.objects["/prefix/ext/staging/x"]) != "hi" {
			t.Errorf("%v, %q", err, s.objects)
		}
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.script = []func(http.ResponseWriter, *http.Request){status(503, "")}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := s.client(t, transfer.Options{}).Upload(ctx, s.write(100), transfer.Bytes(nil)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
