package a2a

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/protocol/a2a/model"
	"agentenv/protocol/transfer"
)

// bodyTimeout is how long a request may take to send its body.
const bodyTimeout = 5 * time.Minute

// The paths of the card, which are the same document, and of the check whether the agent lives.
const (
	cardPath   = "/.well-known/agent-card.json"
	legacyCard = "/.well-known/agent.json"
	healthPath = "/health"
)

// routes are the paths that are served as they stand, by method, and those below which a handler serves all.
type routes struct {
	exact  map[string]map[string]http.Handler
	mounts []mount
}

type mount struct {
	prefix  string
	handler http.Handler
	open    bool
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if methods, known := s.routes.exact[path]; known {
		open := path == cardPath || path == legacyCard || path == healthPath
		if !open && !s.allowed(r) {
			unauthorized(w)
			return
		}
		h := methods[r.Method]
		if h == nil && r.Method == http.MethodHead {
			h = methods[http.MethodGet]
		}
		if h == nil {
			allow := []string{}
			for m := range methods {
				allow = append(allow, m)
			}
			slices.Sort(allow)
			w.Header().Set("Allow", strings.Join(allow, ", "))
			writeError(w, http.StatusMethodNotAllowed, "method_not_allowed", path+" does not take "+r.Method)
			return
		}
		h.ServeHTTP(w, r)
		return
	}
	for _, m := range s.routes.mounts {
		if !strings.HasPrefix(path+"/", m.prefix) {
			continue
		}
		if !m.open && !s.allowed(r) {
			unauthorized(w)
			return
		}
		m.handler.ServeHTTP(w, r)
		return
	}
	writeError(w, http.StatusNotFound, "not_found", "there is nothing at "+path)
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	writeError(w, http.StatusUnauthorized, "unauthorized", "the request needs the agent's bearer token")
}

// readBody reads the body of a request within its limits; the error is shown to the client.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	_ = control.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, fault.New(fault.Invalid, "the body is larger than %d bytes", limit)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "the body cannot be read to its end")
	}
	return body, nil
}

func writeJSON(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func writeError(w http.ResponseWriter, status int, code, detail string) {
	text, _ := json.Marshal(map[string]string{"detail": detail, "code": code})
	writeJSON(w, status, text)
}

// Responder is an error that says itself what a client gets: the status and a JSON body.
type Responder interface {
	error
	Response() (status int, body any)
}

var statuses = map[fault.Kind]struct {
	status int
	code   string
}{
	fault.Invalid:     {http.StatusBadRequest, "invalid"},
	fault.Denied:      {http.StatusForbidden, "denied"},
	fault.NotFound:    {http.StatusNotFound, "not_found"},
	fault.Exists:      {http.StatusConflict, "exists"},
	fault.Conflict:    {http.StatusConflict, "conflict"},
	fault.Unsupported: {http.StatusNotImplemented, "unsupported"},
	fault.Unavailable: {http.StatusServiceUnavailable, "unavailable"},
	fault.Timeout:     {http.StatusGatewayTimeout, "timeout"},
}

// fail answers an error of an extension: a Responder a transfer's error and the kinds of fault say what they are; everything else is for the log, under an id.
func (s *Server) fail(w http.ResponseWriter, operation string, err error) {
	var own Responder
	var moved *transfer.Error
	var kind *fault.Error
	var problems model.Problems
	switch {
	case errors.As(err, &problems):
		writeError(w, http.StatusBadRequest, "invalid", problems.Error())
		return
	case errors.As(err, &moved):
		if text, merr := json.Marshal(moved.JSON()); merr == nil {
			writeJSON(w, moved.Status, text)
			return
		}
	case errors.As(err, &own):
		status, body := own.Response()
		if text, merr := json.Marshal(body); merr == nil {
			writeJSON(w, status, text)
			return
		}
	case errors.As(err, &kind):
		if known, ok := statuses[kind.Kind]; ok {
			writeError(w, known.status, known.code, err.Error())
			return
		}
	}
	id := correlation()
	s.settings.Log.Error("an operation of the agent failed", "operation", operation, "correlation_id", id, "error", err)
	writeError(w, http.StatusInternalServerError, "internal", opaque(id))
}
