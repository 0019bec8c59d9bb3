package staging

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strings"

	"agentenv/fault"
	"agentenv/protocol/transfer"
)

// minID is how many characters the first segment of a path has at least, so that it cannot be guessed.
const minID = 22

// Endpoint is the path below which Handler serves.
const Endpoint = "/ext/staging"

// Handler serves a store below Endpoint: PUT, GET and DELETE of objects, GET and DELETE of everything below a path that ends in a slash, and
// POST of a form to it. Errors are {"detail": text}.
func Handler(s *Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := strings.CutPrefix(r.URL.Path, Endpoint+"/")
		if !ok {
			answerError(w, 404, "there is nothing here")
			return
		}
		folder := strings.HasSuffix(p, "/")
		p = strings.TrimSuffix(p, "/")
		if !plain(p) {
			answerError(w, 400, badPath().Error())
			return
		}
		if id, _, _ := strings.Cut(p, "/"); len(id) < minID {
			answerError(w, 404, "there is nothing here")
			return
		}
		h := handling{s, w, r, p}
		switch {
		case r.Method == http.MethodPut && !folder:
			h.put()
		case r.Method == http.MethodGet && !folder:
			h.get()
		case r.Method == http.MethodDelete && !folder:
			h.done(h.deleted())
		case r.Method == http.MethodPost:
			h.form()
		case r.Method == http.MethodGet:
			h.list()
		case r.Method == http.MethodDelete:
			h.done(s.DeleteAll(p))
		default:
			answerError(w, 405, r.Method+" is not served here")
		}
	})
}

type handling struct {
	s    *Store
	w    http.ResponseWriter
	r    *http.Request
	path string
}

func (h handling) put() {
	sum := sha256.New()
	o, err := h.s.Put(h.path, io.TeeReader(h.r.Body, sum), h.r.ContentLength)
	h.stored(o, sum, err)
}

func (h handling) stored(o Object, sum hash.Hash, err error) {
	if err != nil {
		h.fail(err)
		return
	}
	answer(h.w, 201, map[string]any{"path": o.Path, "size_bytes": o.Size, "etag": o.ETag, "sha256": hex.EncodeToString(sum.Sum(nil))})
}

func (h handling) get() {
	f, o, err := h.s.Get(h.path)
	if err != nil {
		h.fail(err)
		return
	}
	defer f.Close()
	h.w.Header().Set("Content-Type", "application/octet-stream")
	h.w.Header().Set("Content-Length", fmt.Sprint(o.Size))
	h.w.Header().Set("ETag", o.ETag)
	_, _ = io.CopyN(h.w, f, o.Size)
}

func (h handling) deleted() error {
	err := h.s.Delete(h.path, h.r.Header.Get("If-Match"))
	if fault.Is(err, fault.Conflict) {
		return precondition{err}
	}
	return err
}

type precondition struct{ error }

func (h handling) done(err error) {
	if err != nil {
		h.fail(err)
		return
	}
	h.w.WriteHeader(204)
}

func (h handling) list() {
	list, err := h.s.List(h.path)
	if err != nil {
		h.fail(err)
		return
	}
	objects := make([]any, len(list))
	for i, o := range list {
		objects[i] = map[string]any{"path": o.Path, "size_bytes": o.Size, "etag": o.ETag}
	}
	answer(h.w, 200, map[string]any{"objects": objects})
}

// form stores the file of a multipart form under the key that stands before it.
func (h handling) form() {
	f, err := transfer.ReadForm(h.r)
	if err != nil {
		h.fail(err)
		return
	}
	sum := sha256.New()
	o, err := h.s.Put(h.path+"/"+f.Key, io.TeeReader(f.File, sum), -1)
	h.stored(o, sum, err)
}

func (h handling) fail(err error) {
	status := 500
	var p precondition
	switch {
	case errors.As(err, &p):
		status = 412
	case errors.Is(err, errFull):
		status = 413
	case errors.Is(err, errDiskFull):
		status = 507
	case fault.Is(err, fault.Invalid):
		status = 400
	case fault.Is(err, fault.NotFound):
		status = 404
	case fault.Is(err, fault.Conflict):
		status = 409
	}
	answerError(h.w, status, err.Error())
}

func answerError(w http.ResponseWriter, status int, detail string) {
	answer(w, status, map[string]any{"detail": detail})
}

func answer(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
