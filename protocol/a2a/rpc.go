package a2a

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	wire "github.com/a2aproject/a2a-go/a2a"

	"agentenv/fault"
)

// The codes of JSON-RPC errors. Source: JSON-RPC 2.0, section 5.1, and A2A 0.3, section 8.
const (
	codeParse           = -32700
	codeRequest         = -32600
	codeMethod          = -32601
	codeParams          = -32602
	codeInternal        = -32603
	codeNotFound        = -32001
	codeNotCancelable   = -32002
	codeNoNotifications = -32003
	codeUnsupported     = -32004
)

// rpcError is an answer that is an error.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// response is one answer. The id is absent when the request had none that can be echoed.
type response struct {
	JSONRPC string    `json:"jsonrpc"`
	ID      any       `json:"id,omitempty"`
	Result  any       `json:"result,omitempty"`
	Error   *rpcError `json:"error,omitempty"`
}

// call is one request that passed the checks of JSON-RPC.
type call struct {
	id     any
	method string
	params reader
	err    error // the first thing that is wrong with the params
	port   int
}

func refuse(code int, err error) *rpcError { return &rpcError{code, err.Error()} }

// parseCall reads the body of a request; id is what can be echoed even when it is refused.
func parseCall(body []byte) (c *call, id any, refused *rpcError) {
	v, err := decode(body)
	if err != nil {
		return nil, nil, &rpcError{codeParse, "the body is no JSON"}
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, nil, &rpcError{codeRequest, "the body must be one JSON object; batches are not taken"}
	}
	switch given := object["id"].(type) {
	case string:
		id = given
	case json.Number:
		if !strings.ContainsAny(string(given), ".eE") {
			id = given
		}
	}
	method, _ := object["method"].(string)
	switch {
	case id == nil:
		return nil, nil, &rpcError{codeRequest, "id must be a string or an integer"}
	case object["jsonrpc"] != "2.0":
		return nil, id, &rpcError{codeRequest, `jsonrpc must be "2.0"`}
	case method == "":
		return nil, id, &rpcError{codeRequest, "method must be a string"}
	}
	c = &call{id: id, method: method}
	params, ok := object["params"].(map[string]any)
	c.params = reader{"params", params, &c.err}
	if object["params"] != nil && !ok {
		c.params.fail("params must be an object")
	}
	return c, id, nil
}

func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r, s.settings.MaxBody)
	if err != nil {
		answer(w, response{JSONRPC: "2.0", Error: refuse(codeRequest, err)})
		return
	}
	c, id, refused := parseCall(body)
	if refused != nil {
		answer(w, response{JSONRPC: "2.0", ID: id, Error: refused})
		return
	}
	c.port = s.port(r.Context())
	if c.method == "message/stream" || c.method == "tasks/resubscribe" {
		s.serveStream(w, r, c)
		return
	}
	result, refused := s.call(r.Context(), c)
	if refused == nil && r.Context().Err() != nil {
		return
	}
	answer(w, response{JSONRPC: "2.0", ID: c.id, Result: result, Error: refused})
}

func (s *Server) call(ctx context.Context, c *call) (any, *rpcError) {
	switch c.method {
	case "message/send":
		return s.send(ctx, c)
	case "tasks/get":
		history := c.history(c.params)
		t, refused := s.known(c)
		if refused != nil {
			return nil, refused
		}
		return t.snapshot(history), nil
	case "tasks/cancel":
		t, refused := s.known(c)
		if refused != nil {
			return nil, refused
		}
		if !s.tasks.cancel(ctx, t) {
			return nil, &rpcError{codeNotCancelable, "the task " + t.id + " cannot be canceled: it is " + string(t.state()) + " or about to end"}
		}
		return t.snapshot(-1), nil
	case "agent/getAuthenticatedExtendedCard":
		return nil, &rpcError{codeUnsupported, "an extended card is not supported"}
	}
	if strings.HasPrefix(c.method, "tasks/pushNotificationConfig/") {
		return nil, &rpcError{codeNoNotifications, "push notifications are not supported"}
	}
	return nil, &rpcError{codeMethod, "the method is not known"}
}

// known finds the task of a call's id.
func (s *Server) known(c *call) (*task, *rpcError) {
	id := c.params.id("id", true)
	if c.err != nil {
		return nil, refuse(codeParams, c.err)
	}
	t := s.tasks.find(id)
	if t == nil {
		return nil, &rpcError{codeNotFound, "there is no task " + strconv.Quote(id)}
	}
	return t, nil
}

// history reads historyLength: -1 = all.
func (c *call) history(r reader) int {
	raw := field[json.Number](r, "historyLength", "an integer", false)
	if raw == "" {
		return -1
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 0 {
		r.fail("%s.historyLength must be an integer, 0 or more", r.at)
	}
	return n
}

func (s *Server) send(ctx context.Context, c *call) (any, *rpcError) {
	configuration := reader{"params.configuration", field[map[string]any](c.params, "configuration", "an object", false), &c.err}
	blocking := true
	if _, given := configuration.object["blocking"]; given {
		blocking = field[bool](configuration, "blocking", "true or false", false)
	}
	history := c.history(configuration)
	t, first, _, refused := s.begin(c)
	if refused != nil {
		return nil, refused
	}
	if blocking {
		select {
		case <-t.done:
		case <-ctx.Done():
		}
		return t.snapshot(history), nil
	}
	if first == nil {
		return t.snapshot(history), nil
	}
	return trimmed(first, history), nil
}

// begin starts the task of a call's message, or finds the one it started before; first and events are as tasks.start returns them.
func (s *Server) begin(c *call) (t *task, first *wire.Task, events *feed, refused *rpcError) {
	object := field[map[string]any](c.params, "message", "an object", true)
	if c.err != nil {
		return nil, nil, nil, refuse(codeParams, c.err)
	}
	msg, err := parseMessage(object)
	if err != nil {
		return nil, nil, nil, refuse(codeParams, err)
	}
	if msg.TaskID != "" {
		old := s.tasks.find(string(msg.TaskID))
		if old == nil {
			return nil, nil, nil, &rpcError{codeNotFound, "there is no task " + strconv.Quote(string(msg.TaskID))}
		}
		return nil, nil, nil, &rpcError{codeParams, "the task " + old.id + " is " + string(old.state()) + " and takes no more messages; send the message with its contextId alone"}
	}
	request, err := s.request(msg, c.port)
	if err == nil {
		t, first, events, err = s.tasks.start(msg, request, c.port)
	}
	if err != nil {
		return nil, nil, nil, refuse(codeInternal, err)
	}
	return t, first, events, nil
}

// request is the task's own copy of everything it may look at.
func (s *Server) request(msg *wire.Message, port int) (*Request, error) {
	parts, err := copyParts(msg.Parts)
	if err != nil {
		return nil, err
	}
	metadata, err := copyObject(msg.Metadata)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the metadata of the message is no JSON")
	}
	if metadata == nil {
		metadata = map[string]any{}
	}
	r := &Request{Parts: parts, Metadata: metadata, MCPServers: s.servers(port), Skills: s.skills.all(), Workspace: s.agent.Workspace}
	if s.config == nil {
		return r, nil
	}
	if r.Config, err = s.config.current(); err != nil {
		return nil, err
	}
	if role := r.Config.(based).base().Role; role != nil {
		metadata["role"] = *role
	}
	return r, nil
}

func trimmed(t *wire.Task, history int) *wire.Task {
	c := *t
	if n := len(c.History); history >= 0 && history < n {
		c.History = c.History[n-history:]
	}
	return &c
}

// answer writes a JSON-RPC answer; errors have status 200 too.
func answer(w http.ResponseWriter, r response) {
	var text []byte
	var err error
	if r.Error == nil && r.ID != nil {
		text, err = appendResult(nil, r.ID, r.Result)
	} else {
		text, err = json.Marshal(r)
	}
	if err != nil {
		text, _ = json.Marshal(response{JSONRPC: "2.0", ID: r.ID, Error: &rpcError{codeInternal, "the answer is no JSON"}})
	}
	writeJSON(w, http.StatusOK, text)
}

// appendResult appends the answer to a call that has a result.
func appendResult(b []byte, id, result any) ([]byte, error) {
	b, err := appendJSON(append(b, `{"jsonrpc":"2.0","id":`...), id)
	if err != nil {
		return nil, err
	}
	if b, err = appendJSON(append(b, `,"result":`...), result); err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}
