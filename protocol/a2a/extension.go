package a2a

import (
	"context"
	"net/http"
	"reflect"

	"agentenv/protocol/a2a/model"
	"agentenv/protocol/card"
)

// Extension is something an agent serves besides its messages. For the kit's own there are functions that make them; one of the standard
// URIs takes exactly the operations the protocol gives it, any other URI (not urn:agentenv:…) whatever it likes.
type Extension struct {
	URI, Description string
	Required         bool
	// Endpoint is the path the card gives for the extension; "" = the protocol's, or that of the first operation.
	Endpoint string
	// Params are merged into what the card says about the extension.
	Params     map[string]any
	Operations []Operation
	// Mounts are handlers that serve a path and all below it, given with a slash at its end.
	Mounts map[string]Mount
	// MCPServers, when set, adds MCP servers to each task, with the port its request was taken on (0 = not known).
	MCPServers func(port int) map[string]MCPServer
	// Reserved are names of MCP servers that clients cannot register.
	Reserved []string
	// Close, when set, runs once: when the server closes, after the tasks ended, or when New fails.
	Close func(context.Context) error

	bind func(*Server) []Operation // the operations of the kit's own extensions
}

// Mount is a handler that serves all below a path.
type Mount struct {
	Handler http.Handler
	// Open says that the handler guards itself: it is reached without the agent's token.
	Open bool
}

// Operation is one call of an extension. Make it with Op, or with Cases where a request has several forms.
type Operation struct {
	Name string
	// Method and Path are for extensions of one's own; those of a standard one are the protocol's.
	Method, Path string
	variants     []Variant
	response     *model.Model
}

// Variant is one form of an operation's request.
type Variant struct {
	name     string
	off      bool
	request  *model.Model
	response *model.Model
	err      error
	read     func(map[string]any) (any, model.Problems)
	call     func(context.Context, any) (any, error)
}

// Op returns an operation whose request has one form, In: a struct as package model takes it; struct{} takes no field. Out is answered as a
// JSON object: a struct of that kind, a map, an io.WriterTo that writes an object, or struct{} for {}.
//
// Errors of the kinds of fault become the statuses they stand for (Invalid 400, NotFound 404, Exists and Conflict 409, …) with their text;
// a Responder answers for itself; all others are a 500 that shows only an id.
func Op[In, Out any](name string, handle func(context.Context, In) (Out, error)) Operation {
	return Cases(name, Case(name, handle))
}

// Cases returns an operation whose request has several forms, of which exactly one must fit.
func Cases(name string, variants ...Variant) Operation {
	op := Operation{Name: name, variants: variants}
	if len(variants) == 1 {
		op.response = variants[0].response
	}
	return op
}

// Case returns one form of a request, as Op takes it.
func Case[In, Out any](name string, handle func(context.Context, In) (Out, error)) Variant {
	v := Variant{name: name}
	if handle == nil {
		return v
	}
	if v.request, v.err = model.Of(reflect.TypeFor[In]()); v.err != nil {
		return v
	}
	if out := reflect.TypeFor[Out](); out.Kind() == reflect.Struct && !out.Implements(reflect.TypeFor[writer]()) {
		if v.response, v.err = model.Of(out); v.err != nil {
			return v
		}
	}
	v.read = func(object map[string]any) (any, model.Problems) {
		var in In
		problems := v.request.Decode(object, &in)
		return in, problems
	}
	v.call = func(ctx context.Context, in any) (any, error) { return handle(ctx, in.(In)) }
	return v
}

// When returns the form, enabled or not: fields of a disabled form are refused as not supported, and the card does not have it.
func (v Variant) When(enabled bool) Variant {
	v.off = !enabled
	return v
}

// At returns the operation at a method and path of its own, for extensions that are not standard.
func (o Operation) At(method, path string) Operation {
	o.Method, o.Path = method, path
	return o
}

// AttributionProbe returns the extension by which a validator asks which attribution headers the agent saw last on a model's answer.
func AttributionProbe(probe func(context.Context) (Attribution, error)) Extension {
	return Extension{URI: card.AttributionProbe, Description: "Tell the attribution that was seen last", Operations: []Operation{
		Op("probe", func(ctx context.Context, _ struct{}) (Attribution, error) { return probe(ctx) })}}
}

// Attribution is what an agent saw last.
type Attribution struct {
	LastSeen map[string]string `json:"last_seen_attribution"`
	SeenAt   *string           `json:"last_seen_at_utc"` // RFC 3339, nil = not known
}

// Install returns the declaration that the agent can be installed into a machine that runs already, with what the installer needs to know.
func Install(params map[string]any) Extension {
	return Extension{URI: card.Install, Description: "Install the agent into a running machine", Params: params}
}
