package grants

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"agentenv/fault"
	"agentenv/protocol/transfer"
	"agentenv/store/object"
)

const octets = "application/octet-stream"

func (s *Server) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.URL.Path, grantsPath)
		if !ok {
			refuse(w, 404, "There is nothing here.")
			return
		}
		ops := map[string]string{"GET": opGet, "HEAD": opGet, "PUT": opPut, "POST": opPost}
		op, served := ops[r.Method]
		if !served {
			w.Header().Set("Allow", "GET, HEAD, PUT, POST")
			refuse(w, 405, "The method is not served.")
			return
		}
		c, ok := s.verify(token)
		s.mu.Lock()
		st := s.stores[c.Store]
		s.mu.Unlock()
		if !ok || st == nil || c.Op != op {
			refuse(w, 403, "The grant does not allow this.")
			return
		}
		h := handling{s, st, c, w, r}
		switch op {
		case opGet:
			h.get()
		case opPut:
			h.put()
		case opPost:
			h.post()
		}
	})
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

type handling struct {
	s     *Server
	store object.Store
	c     claims
	w     http.ResponseWriter
	r     *http.Request
}

// get gives bytes and type of one and the same write.
func (h handling) get() {
	url, err := h.store.URL(*h.c.Key)
	if err != nil {
		h.failed(err)
		return
	}
	body, info, err := h.open(url)
	switch {
	case fault.Is(err, fault.NotFound):
		refuse(h.w, 404, "There is no object.")
		return
	case err != nil:
		h.failed(err)
		return
	}
	kind := info.ContentType
	if kind == "" {
		kind = octets
	}
	h.w.Header().Set("Content-Type", kind)
	h.w.Header().Set("Content-Length", fmt.Sprint(info.Size))
	if body == nil {
		return
	}
	defer body.Close()
	_, _ = io.CopyBuffer(struct{ io.Writer }{h.w}, io.LimitReader(body, info.Size), make([]byte, 1<<20))
}

// open describes an object and opens it, unless only asked about it; an object that is written meanwhile is looked at again.
func (h handling) open(url string) (io.ReadCloser, *object.Info, error) {
	const tries = 5
	ctx := h.r.Context()
	for range tries {
		info, err := h.store.Stat(ctx, url)
		switch {
		case err != nil:
			return nil, nil, err
		case info == nil:
			return nil, nil, fault.New(fault.NotFound, "no object at %s", url)
		case h.r.Method == http.MethodHead:
			return nil, info, nil
		}
		body, err := h.store.Open(ctx, url)
		if err != nil {
			return nil, nil, err
		}
		again, err := h.store.Stat(ctx, url)
		if err == nil && again != nil && *again == *info {
			return body, info, nil
		}
		body.Close()
	}
	return nil, nil, fault.New(fault.Unavailable, "the object at %s is written all the time", url)
}

func (h handling) put() {
	switch {
	case h.r.Header.Get("Content-Type") != *h.c.Type:
		refuse(h.w, 403, "The grant is for another content type.")
		return
	case h.r.ContentLength > *h.c.Max:
		refuse(h.w, 400, "The object is larger than its grant allows.")
		return
	}
	h.write(*h.c.Key, *h.c.Type, h.r.Body, h.r.ContentLength, 200)
}

// write stores an object over one that is there, counting as it comes.
func (h handling) write(key, kind string, body io.Reader, size int64, status int) {
	count := &counted{r: body, left: *h.c.Max}
	_, err := h.store.Put(h.r.Context(), object.Item{Key: key, ContentType: kind, Size: size, Body: count}, true)
	switch {
	case count.over:
		refuse(h.w, 400, "The object is larger than its grant allows.")
	case count.err != nil:
		refuse(h.w, 400, "The body could not be read.")
	case fault.Is(err, fault.Invalid, fault.Denied):
		refuse(h.w, 403, "The object cannot have this name.")
	case err != nil:
		h.failed(err)
	default:
		h.w.WriteHeader(status)
	}
}

func (h handling) failed(err error) {
	h.s.o.Log.Error("a grant could not be served", "op", h.c.Op, "error", err)
	refuse(h.w, 500, "The object store could not serve this.")
}

// counted ends a body that is larger than allowed, and remembers one that broke.
type counted struct {
	r    io.Reader
	left int64
	over bool
	err  error
}

var errOver = errors.New("larger than allowed")

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.left -= int64(n); c.left < 0 {
		c.over = true
		return 0, errOver
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// post stores the file of a form under the key that stands before it.
func (h handling) post() {
	form, err := transfer.ReadForm(h.r)
	switch {
	case err != nil:
		refuse(h.w, 400, err.Error())
	case !transfer.Relative(form.Key) || !strings.HasPrefix(form.Key, *h.c.Prefix):
		refuse(h.w, 403, "The grant is for other names.")
	default:
		h.write(form.Key, form.ContentType, form.File, -1, 204)
	}
}
