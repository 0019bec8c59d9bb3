package staging

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"agentenv/fault"
)

// The bounds of a request.
const (
	minID          = 22 // characters of the first path segment, so that it cannot be guessed
	maxFields      = 32
	maxField       = 64 << 10
	maxPartHeaders = 16 << 10
)

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

// form stores the file of a multipart form under the key that stands before it; what follows the file is passed over.
func (h handling) form() {
	kind, params, err := mime.ParseMediaType(h.r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		answerError(h.w, 400, "the body is no multipart/form-data with a boundary")
		return
	}
	parts := multipart.NewReader(h.r.Body, params["boundary"])
	key := ""
	for fields := 0; ; fields++ {
		part, err := parts.NextRawPart()
		switch {
		case errors.Is(err, io.EOF):
			answerError(h.w, 400, "the form has no file")
			return
		case err != nil:
			answerError(h.w, 400, "the form cannot be read")
			return
		case headerBytes(part) > maxPartHeaders:
			answerError(h.w, 400, fmt.Sprintf("the headers of a part are longer than %d bytes", maxPartHeaders))
			return
		}
		if part.FormName() == "file" {
			if key == "" {
				answerError(h.w, 400, "the form has no key before its file")
				return
			}
			sum := sha256.New()
			o, err := h.s.Put(h.path+"/"+key, io.TeeReader(part, sum), -1)
			h.stored(o, sum, err)
			return
		}
		if fields >= maxFields {
			answerError(h.w, 400, fmt.Sprintf("the form has more than %d fields", maxFields))
			return
		}
		value, err := io.ReadAll(io.LimitReader(part, maxField+1))
		switch {
		case err != nil:
			answerError(h.w, 400, "the form cannot be read")
			return
		case len(value) > maxField:
			answerError(h.w, 400, fmt.Sprintf("a field of the form is longer than %d bytes", maxField))
			return
		}
		if part.FormName() == "key" {
			key = string(value)
		}
	}
}

func headerBytes(p *multipart.Part) (n int) {
	for k, values := range p.Header {
		for _, v := range values {
			n += len(k) + len(v)
		}
	}
	return n
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
