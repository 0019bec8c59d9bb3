package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/protocol/a2a/model"
)

// writer is an answer that writes itself.
type writer interface {
	WriteTo(io.Writer) (int64, error)
}

// serveOperation answers a request to an operation.
func (s *Server) serveOperation(op Operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		object, err := input(w, r, min(s.settings.MaxBody, maxExtBody))
		if err != nil {
			s.fail(w, op.Name, err)
			return
		}
		v, in, err := op.choose(object)
		if err != nil {
			s.fail(w, op.Name, err)
			return
		}
		out, err := invoke(withPort(r.Context(), s.port(r.Context())), v, in)
		if err != nil {
			s.fail(w, op.Name, err)
			return
		}
		if own, ok := out.(writer); ok {
			w.Header().Set("Content-Type", "application/json")
			_, _ = own.WriteTo(w)
			return
		}
		text, err := encode(v, out)
		if err != nil {
			s.fail(w, op.Name, err)
			return
		}
		writeJSON(w, http.StatusOK, text)
	})
}

// invoke calls the handler; a panic of it is an error like others.
func invoke(ctx context.Context, v *Variant, in any) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return v.call(ctx, in)
}

func encode(v *Variant, out any) ([]byte, error) {
	if v.response != nil {
		out = v.response.Encode(out)
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	if string(text) == "null" {
		return []byte("{}"), nil
	}
	if !bytes.HasPrefix(text, []byte("{")) {
		return nil, errNoObject
	}
	return text, nil
}

// errNoObject is a defect of a handler: it carries no kind, so that nothing of it is shown.
var errNoObject = fault.New(fault.Internal, "an operation answered something that is no JSON object")

// input reads what a request holds as an object: the query of a GET, else the body.
func input(w http.ResponseWriter, r *http.Request, limit int64) (map[string]any, error) {
	object := map[string]any{}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return nil, fault.New(fault.Invalid, "the query cannot be read")
		}
		for name, values := range query {
			object[name] = values[len(values)-1]
		}
		return object, nil
	}
	body, err := readBody(w, r, limit)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return object, nil
	}
	v, err := decode(body)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the body is no JSON")
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, fault.New(fault.Invalid, "the body must be a JSON object")
	}
	return object, nil
}

// choose finds the one form of the request that the object fits, and reads it.
func (o Operation) choose(object map[string]any) (*Variant, any, error) {
	on := o.enabled()
	if len(on) == 1 && len(on[0].request.Names()) == 0 && len(object) > 0 {
		return nil, nil, fault.New(fault.Invalid, "the operation %q takes no fields", o.Name)
	}
	if unsupported := o.unsupported(object); len(unsupported) > 0 {
		return nil, nil, fault.New(fault.Invalid, "unsupported request variant fields: %s", strings.Join(unsupported, ", "))
	}
	if len(on) == 1 {
		in, problems := on[0].read(object)
		if len(problems) > 0 {
			return nil, nil, problems
		}
		return on[0], in, nil
	}
	if missing := missing(hoisted(on, (*model.Model).Required), object); len(missing) > 0 {
		return nil, nil, fault.New(fault.Invalid, "missing required fields: %s", strings.Join(missing, ", "))
	}
	var names []string
	var closest, fit *Variant
	var reasons model.Problems
	var value any
	for _, v := range on {
		names = append(names, v.name)
		in, problems := v.read(object)
		switch {
		case len(problems) > 0 && (closest == nil || distance(problems) < distance(reasons)):
			closest, reasons = v, problems
		case len(problems) == 0 && fit != nil:
			return nil, nil, fault.New(fault.Invalid, "the request of %q fits both %q and %q", o.Name, fit.name, v.name)
		case len(problems) == 0:
			fit, value = v, in
		}
	}
	if fit == nil {
		return nil, nil, fault.New(fault.Invalid, "the request of %q fits none of its forms (%s); the closest is %q: %v", o.Name,
			strings.Join(names, ", "), closest.name, reasons)
	}
	return fit, value, nil
}

// distance says how far a request is from a form: its own fields too many or too few count more than what is in them.
func distance(problems model.Problems) (n int) {
	for _, p := range problems {
		if n++; len(p.Loc) == 1 && (p.Type == "missing" || p.Type == "extra_forbidden") {
			n += 100
		}
	}
	return n
}

func (o Operation) enabled() (on []*Variant) {
	for i := range o.variants {
		if !o.variants[i].off {
			on = append(on, &o.variants[i])
		}
	}
	return on
}

// unsupported returns the fields of the object that only disabled forms have.
func (o Operation) unsupported(object map[string]any) (out []string) {
	for name := range object {
		off, on := false, false
		for _, v := range o.variants {
			has := v.request.Has(name)
			off, on = off || (has && v.off), on || (has && !v.off)
		}
		if off && !on {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func missing(required []string, object map[string]any) (out []string) {
	for _, name := range required {
		if _, given := object[name]; !given {
			out = append(out, name)
		}
	}
	return out
}

// hoisted returns the fields that all forms have in a list.
func hoisted(on []*Variant, list func(*model.Model) []string) []string {
	out := slices.Clone(list(on[0].request))
	for _, v := range on[1:] {
		other := list(v.request)
		out = slices.DeleteFunc(out, func(name string) bool { return !slices.Contains(other, name) })
	}
	return out
}
