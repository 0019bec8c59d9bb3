package transfer_test

import (
	"errors"
	"io"
	"net/http"
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
