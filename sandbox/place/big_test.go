package place_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"path"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/sandbox/place"
)

// bigPlace takes big files one by one, unless it refuses, and all others in a stream.
type bigPlace struct {
	place.Place
	refuse bool
	big    []string
	small  []string
}

func (p *bigPlace) String() string { return "a test" }

func (p *bigPlace) PutTarPlaced(_ context.Context, dir string, r io.Reader) ([]place.Placed, error) {
	return untar(r, func(name string) { p.small = append(p.small, name) })
}

func (p *bigPlace) PutBig(ctx context.Context, dir, name string, executable bool, size int64, open func(context.Context) (io.ReadCloser, error)) (place.Placed, bool, error) {
	if p.refuse {
		return place.Placed{}, false, nil
	}
	r, err := open(ctx)
	if err != nil {
		return place.Placed{}, false, err
	}
	defer r.Close()
	h := sha256.New()
	n, err := io.Copy(h, r)
	p.big = append(p.big, path.Join(dir, name))
	return place.Placed{Name: name, Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, true, err
}

func untar(r io.Reader, each func(string)) (out []place.Placed, err error) {
	tr := tar.NewReader(r)
	for {
		e, err := tr.Next()
		if err == io.EOF {
			return out, nil
		}
		h := sha256.New()
		if err == nil {
			_, err = io.Copy(h, tr)
		}
		if err != nil {
			return nil, err
		}
		each(e.Name)
		out = append(out, place.Placed{Name: e.Name, Size: e.Size, SHA256: hex.EncodeToString(h.Sum(nil))})
	}
}

func TestPutBig(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<20+1)
	sum := sha256.Sum256(body)
	known := place.Bytes("d/known", 0o755, body)
	known.SHA256 = hex.EncodeToString(sum[:])
	sources := []place.Source{place.Bytes("first", 0, []byte("1")), place.Bytes("big", 0, body), place.Bytes("last", 0, nil), known}
	for _, refuse := range []bool{false, true} {
		p := &bigPlace{refuse: refuse}
		var moved int64
		got, err := place.Put(t.Context(), p, "/to", sources, func(n int64) { moved = n })
		if err != nil || len(got) != 4 {
			t.Fatal(got, err)
		}
		for i, name := range []string{"first", "big", "last", "d/known"} {
			if got[i].Name != name {
				t.Errorf("%d is %s, want %s", i, got[i].Name, name)
			}
		}
		if got[1].SHA256 != known.SHA256 || got[3].SHA256 != known.SHA256 || moved != 2*int64(len(body))+1 {
			t.Errorf("moved %d, %+v", moved, got)
		}
		want := map[bool]string{false: "/to/big /to/d/known | first last", true: " | first big last d/known"}[refuse]
		if have := strings.Join(p.big, " ") + " | " + strings.Join(p.small, " "); have != want {
			t.Errorf("went %q, want %q", have, want)
		}
	}
	for name, change := range map[string]func(*place.Source){
		"longer": func(s *place.Source) { s.Size-- },
		"ends":   func(s *place.Source) { s.Size++ },
		"sha256": func(s *place.Source) { s.SHA256 = strings.Repeat("0", 64) },
		"no body": func(s *place.Source) {
			s.Body = func(context.Context) (io.ReadCloser, error) { return nil, io.ErrNoProgress }
		},
	} {
		s := known
		change(&s)
		_, err := place.Put(t.Context(), &bigPlace{}, "/to", []place.Source{s}, nil)
		if err == nil || !strings.Contains(err.Error(), "d/known") || name != "no body" && !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
