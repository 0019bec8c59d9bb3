// Package card reads agent cards: what an agent says about itself, which extensions it serves, and which request bodies they take.
// Nothing here does I/O. Source: A2A 0.3 and the urn:agentenv extensions.
package card

import (
	"bytes"
	"encoding/json"
	"strings"

	"agentenv/fault"
)

// Card is an agent card. Fields that the card does not have, or has with another type, are zero: cards of agents in the field are read
// leniently, and what counts is asked of the methods.
type Card struct {
	Name, Description, Version string
	URL                        string // as served, "" when absent
	ProtocolVersion            string
	Transport                  string
	InputModes, OutputModes    []string
	Streaming                  bool
	Schemes                    map[string]any // securitySchemes, nil when absent
	Extensions                 []Extension
	// Document is the whole card as served.
	Document map[string]any
}

// Extension is one entry of capabilities.extensions.
type Extension struct {
	URI, Description string
	Required         bool
	// Params is the extension's own object (`config`, else `params`), nil when absent.
	Params map[string]any
}

// Operation is what a card says about one operation of an extension.
type Operation struct {
	Method  string // HTTP method; the protocol's own where the card gives none, "" when unknown
	Path    string // absolute path, "" when neither the card nor the protocol gives one
	Listed  bool   // the card lists the operation under methods
	Request *Request
}

// Request says which fields an operation takes; nil means that the card declares no request.
type Request struct {
	required, declared map[string]bool
	branches           []Request
}

// Parse reads a card. Anything but a JSON object is an Invalid error. Numbers keep their digits (json.Number).
func Parse(text []byte) (*Card, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fault.New(fault.Invalid, "the agent card is no JSON: %v", err)
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, fault.New(fault.Invalid, "the agent card must be a JSON object")
	}
	return Of(o), nil
}

// Of reads a card that is decoded already; it keeps the map, which must not be changed afterwards.
func Of(o map[string]any) *Card {
	c := &Card{Name: text(o, "name"), Description: text(o, "description"), Version: text(o, "version"), URL: text(o, "url"),
		ProtocolVersion: text(o, "protocolVersion"), Transport: text(o, "preferredTransport"),
		InputModes: texts(o, "defaultInputModes"), OutputModes: texts(o, "defaultOutputModes"), Schemes: object(o, "securitySchemes"), Document: o}
	capabilities := object(o, "capabilities")
	c.Streaming, _ = capabilities["streaming"].(bool)
	list, _ := capabilities["extensions"].([]any)
	for _, v := range list {
		e, ok := v.(map[string]any)
		if !ok || text(e, "uri") == "" {
			continue
		}
		x := Extension{URI: text(e, "uri"), Description: text(e, "description"), Params: object(e, "config")}
		x.Required, _ = e["required"].(bool)
		if x.Params == nil {
			x.Params = object(e, "params")
		}
		c.Extensions = append(c.Extensions, x)
	}
	return c
}

// Extension returns the entry of a URI, nil when the card has none.
func (c *Card) Extension(uri string) *Extension {
	if c == nil {
		return nil
	}
	for i := range c.Extensions {
		if c.Extensions[i].URI == uri {
			return &c.Extensions[i]
		}
	}
	return nil
}

// Bearer reports whether the card declares HTTP bearer authentication; a nil card does not.
func (c *Card) Bearer() bool {
	if c == nil {
		return false
	}
	for _, v := range c.Schemes {
		s, _ := v.(map[string]any)
		if text(s, "type") == "http" && strings.EqualFold(text(s, "scheme"), "bearer") {
			return true
		}
	}
	return false
}

// Operation looks an operation up: a path of the method's own wins; else, where the protocol serves the operation at another path than the
// extension's, that path; else the card's endpoint; else the protocol's path. A nil extension knows no operation.
func (e *Extension) Operation(name string) Operation {
	if e == nil {
		return Operation{}
	}
	route, endpoint, known := Standard(e.URI, name)
	op := Operation{Method: route.Method}
	m, listed := object(e.Params, "methods")[name].(map[string]any)
	op.Listed = listed
	if s := text(m, "method"); s != "" {
		op.Method = s
	}
	switch own, given := text(m, "endpoint"), text(e.Params, "endpoint"); {
	case own != "":
		op.Path = own
	case known && route.Path != endpoint:
		op.Path = route.Path
	case given != "":
		op.Path = given
	default:
		op.Path = route.Path
	}
	if r := object(m, "request"); r != nil {
		op.Request = requestOf(r)
	}
	return op
}

// Takes reports whether the card lists the operation and its request accepts a body of exactly these fields.
func (e *Extension) Takes(name string, fields ...string) bool {
	op := e.Operation(name)
	return op.Listed && op.Request.Accepts(fields...)
}

func requestOf(o map[string]any) *Request {
	r := &Request{required: map[string]bool{}, declared: map[string]bool{}}
	for _, f := range texts(o, "required") {
		r.required[f], r.declared[f] = true, true
	}
	for _, key := range []string{"optional", "supported"} {
		for _, f := range texts(o, key) {
			r.declared[f] = true
		}
	}
	list, _ := o["oneOf"].([]any)
	for _, v := range list {
		if b, ok := v.(map[string]any); ok {
			r.branches = append(r.branches, *requestOf(b))
		}
	}
	return r
}

// Accepts reports whether a body of exactly these fields is accepted: for some branch, all required fields are there and all fields are
// declared. A nil request accepts the empty body alone.
func (r *Request) Accepts(fields ...string) bool {
	if r == nil {
		return len(fields) == 0
	}
	if len(r.branches) == 0 {
		return r.accepts(nil, fields)
	}
	for i := range r.branches {
		if r.accepts(&r.branches[i], fields) {
			return true
		}
	}
	return false
}

func (r *Request) accepts(branch *Request, fields []string) bool {
	given := map[string]bool{}
	for _, f := range fields {
		if given[f] = true; !r.declared[f] && (branch == nil || !branch.declared[f]) {
			return false
		}
	}
	for f := range r.required {
		if !given[f] {
			return false
		}
	}
	if branch == nil {
		return true
	}
	for f := range branch.required {
		if !given[f] {
			return false
		}
	}
	return true
}

// Supported returns those of the fields that the request declares, in their order: what a negotiated body may hold.
func (r *Request) Supported(fields ...string) []string {
	var out []string
	for _, f := range fields {
		if r == nil {
			break
		}
		known := r.declared[f]
		for i := range r.branches {
			known = known || r.branches[i].declared[f]
		}
		if known {
			out = append(out, f)
		}
	}
	return out
}

func text(o map[string]any, key string) string {
	s, _ := o[key].(string)
	return s
}

func object(o map[string]any, key string) map[string]any {
	m, _ := o[key].(map[string]any)
	return m
}

func texts(o map[string]any, key string) (out []string) {
	list, _ := o[key].([]any)
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
