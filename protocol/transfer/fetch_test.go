package transfer_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"agentenv/protocol/transfer"
)

func TestFetch(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(t, transfer.Options{})
	fetch := func(o transfer.ReadObject) (tag, text string, u transfer.Uploaded, err error) {
		u, err = c.Fetch(t.Context(), o, func(got string, body io.Reader) error {
			b, err := io.ReadAll(body)
			tag, text = got, string(b)
			return err
		})
		return tag, text, u, err
	}
	s.objects["/o"] = []byte("hello")
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "he")
	}
	tagged := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"7"`)
		_, _ = io.WriteString(w, "hello")
	}
	s.script = append(s.script, half, tagged) // taken anew after a broken attempt
	tag, text, u, err := fetch(s.read(5))
	if err != nil || tag != `"7"` || text != "hello" || u != (transfer.Uploaded{Size: 5, SHA256: sum("hello")}) {
		t.Error(tag, text, u, err)
	}
	_, _, _, err = fetch(s.read(4))
	isCode(t, err, "transfer_too_large", false)
	o := s.read(5)
	o.Size = 4
	_, _, _, err = fetch(o)
	isCode(t, err, "integrity_mismatch", false)
	o.Size, o.SHA256 = 5, sum("other")
	_, _, _, err = fetch(o)
	isCode(t, err, "integrity_mismatch", false)
	o.SHA256 = sum("hello")
	if _, text, _, err = fetch(o); err != nil || text != "hello" {
		t.Error(text, err)
	}
	_, err = c.Fetch(t.Context(), o, func(string, io.Reader) error { return nil })
	isCode(t, err, "integrity_mismatch", false)
	own := errors.New("no room")
	if _, err = c.Fetch(t.Context(), o, func(string, io.Reader) error { return own }); !errors.Is(err, own) {
		t.Error(err)
	}
	for code, want := range map[int]string{404: "transfer_rejected", 507: "transfer_unavailable"} {
		s.script = nil
		for range 3 {
			s.script = append(s.script, status(code, ""))
		}
		_, _, _, err = fetch(o)
		isCode(t, err, want, code == 507)
		var told *transfer.Error
		if !errors.As(err, &told) || told.Answered() != code {
			t.Error(err)
		}
	}
}

// TestEncodedObject has a store give an object with a content encoding: what is kept are the bytes as they came, whatever the grant's headers ask for.
func TestEncodedObject(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := io.WriteString(z, "hello")
	must(t, err)
	must(t, z.Close())
	want := packed.String()
	for name, headers := range map[string]map[string]string{"no headers": nil, "headers": {"X-Grant": "hidden"}, "a header that asks for gzip": {"accept-encoding": "gzip"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			c := s.client(t, transfer.Options{})
			encoded := func(w http.ResponseWriter, r *http.Request) {
				if asked := r.Header.Get("Accept-Encoding"); headers["accept-encoding"] == "" && asked != "identity" {
					t.Errorf("it asks for the encoding %q", asked)
				}
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = io.WriteString(w, want)
			}
			s.script = append(s.script, encoded, encoded)
			o := s.read(1000)
			o.Read.Headers, o.Size, o.SHA256 = headers, int64(len(want)), sum(want)
			file := filepath.Join(t.TempDir(), "f")
			u, err := c.Download(t.Context(), o, file)
			must(t, err)
			kept, err := os.ReadFile(file)
			if err != nil || string(kept) != want || u != (transfer.Uploaded{Size: int64(len(want)), SHA256: sum(want)}) {
				t.Errorf("downloaded %q, %+v, %v", kept, u, err)
			}
			u, err = c.Fetch(t.Context(), o, func(_ string, body io.Reader) error {
				kept, err = io.ReadAll(body)
				return err
			})
			if err != nil || string(kept) != want || u.Size != int64(len(want)) {
				t.Errorf("fetched %q, %+v, %v", kept, u, err)
			}
		})
	}
}
