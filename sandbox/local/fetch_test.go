package local_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/sandbox/place"
)

func host(t *testing.T) place.Place {
	t.Helper()
	p, err := local.New(local.Options{Root: t.TempDir(), StateRoot: t.TempDir(), Engine: &engine.Lazy{Options: engine.Options{
		Getenv: func(k string) string { return map[string]string{"DOCKER_HOST": "unix:///nowhere"}[k] }}}})
	if err != nil {
		t.Fatal(err)
	}
	id := p.NewID()
	m, err := p.Create(t.Context(), id, sandbox.Spec{Mode: sandbox.VM})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Terminate(context.Background(), id) })
	return m.Host()
}

func TestFetch(t *testing.T) {
	p := host(t)
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		if r.Header.Get("Accept-Encoding") != "identity" {
			t.Error("a server that compresses would change the bytes")
		}
		io.WriteString(w, "content")
	}))
	defer s.Close()
	got, err := place.Fetch(t.Context(), p, s.URL+"/f?sig=geheim", "/app/in/f", s.Client(), nil)
	if err != nil || got.Size != 7 || asked.Load() != 2 {
		t.Errorf("%+v after %d requests, %v", got, asked.Load(), err)
	}
	if e, err := p.Stat(t.Context(), "/app/in/f", false); err != nil || e.Size != 7 {
		t.Errorf("%+v, %v", e, err)
	}
	if got, err := place.Fetch(t.Context(), p, s.URL, "/app/../app/in/h", s.Client(), nil); err != nil || got.Size != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if e, err := p.Stat(t.Context(), "/app/in/h", false); err != nil || e.Size != 7 {
		t.Errorf("a path that names the parent of /app on its way: %+v, %v", e, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	s.Config.Handler = http.NotFoundHandler()
	_, err = place.Fetch(ctx, p, s.URL+"/g?sig=geheim", "/app/in/g", s.Client(), nil)
	if !fault.Is(err, fault.Timeout) || strings.Contains(err.Error(), "geheim") {
		t.Errorf("error %v, want a timeout without the query", err)
	}
	for _, u := range []string{"file:///etc/passwd", "nonsense", "http://"} {
		if _, err := place.Fetch(t.Context(), p, u, "/app/x", nil, nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// liar is a place that loses or changes what is put into it.
type liar struct {
	place.Place
	change func(*[]place.Placed)
}

func (l liar) PutTarPlaced(ctx context.Context, dir string, r io.Reader) ([]place.Placed, error) {
	placed, err := l.Place.(place.TarPlacer).PutTarPlaced(ctx, dir, r)
	l.change(&placed)
	return placed, err
}

func TestPutChecks(t *testing.T) {
	p := host(t)
	for says, change := range map[string]func(*[]place.Placed){
		"is not in":       func(l *[]place.Placed) { *l = (*l)[:1] },
		"bytes":           func(l *[]place.Placed) { (*l)[1].Size++ },
		"another content": func(l *[]place.Placed) { (*l)[1].SHA256 = "00" },
	} {
		_, err := place.Put(t.Context(), liar{p, change}, "/app/d", []place.Source{place.Bytes("a", 0, []byte("1")), place.Bytes("b", 0, []byte("2"))}, nil)
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "/app/d/b") {
			t.Errorf("%s: %v", says, err)
		}
	}
	var moved int64
	plain := struct{ place.Place }{p} // without TarPlacer, so that Put reads back by itself
	got, err := place.Put(t.Context(), plain, "/app/e", []place.Source{place.Bytes("a", 0, []byte("123")), {Name: "f", Folder: true}}, func(n int64) { moved = n })
	if err != nil || len(got) != 1 || got[0].Size != 3 || moved != 3 {
		t.Errorf("%+v, moved %d, %v", got, moved, err)
	}
}
