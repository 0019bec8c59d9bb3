// Package model reads JSON objects into Go structs as closed models: a field that the struct does not have is refused, and what is wrong
// is said with the place and without the value. A model also says which fields it takes, for cards and schemas. Nothing here does I/O.
//
// Fields are the exported ones with a json tag; embedded structs bring theirs. A field is required unless it is a pointer, or its tags say
// `json:",omitempty"` or `agent:"optional"`. More of the agent tag, separated by commas: `strict` (an integer must be a JSON integer),
// `writeonly` (never read back), `min=N`, `max=N` (bounds of a number; of a string's or list's length).
package model

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"agentenv/fault"
)

// Model is a closed description of a struct. It is immutable and safe for concurrent use.
type Model struct {
	fields []field
	byName map[string]*field
}

type field struct {
	name      string
	index     []int
	typ       reflect.Type
	required  bool
	strict    bool
	writeOnly bool
	min, max  *int64
}

// Validator is implemented by structs whose fields must fit together; the error's text is shown to the caller and must hold no value.
type Validator interface{ Validate() error }

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	validator   = reflect.TypeFor[Validator]()
)

// Of returns the model of a struct, given as a value, a pointer or a reflect.Type. A type that JSON objects cannot be read into is an
// Invalid error that names the field.
func Of(sample any) (*Model, error) {
	t, ok := sample.(reflect.Type)
	if !ok {
		t = reflect.TypeOf(sample)
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fault.New(fault.Invalid, "a model must be a struct, not %v", t)
	}
	return of(t, nil)
}

// of returns the model of a struct that is below others, which it must not hold.
func of(t reflect.Type, above []reflect.Type) (*Model, error) {
	if slices.Contains(above, t) {
		return nil, fault.New(fault.Invalid, "the type %v holds itself", t)
	}
	m := &Model{byName: map[string]*field{}}
	if err := m.add(t, nil, append(slices.Clone(above), t)); err != nil {
		return nil, err
	}
	for i := range m.fields {
		f := &m.fields[i]
		if m.byName[f.name] != nil {
			return nil, fault.New(fault.Invalid, "the model %v has two fields named %q", t, f.name)
		}
		m.byName[f.name] = f
	}
	return m, nil
}

func (m *Model) add(t reflect.Type, index []int, above []reflect.Type) error {
	for i := range t.NumField() {
		sf := t.Field(i)
		at := append(slices.Clone(index), i)
		name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct {
			if err := m.add(sf.Type, at, above); err != nil {
				return err
			}
			continue
		}
		if !sf.IsExported() || name == "" || name == "-" {
			continue
		}
		f := field{name: name, index: at, typ: sf.Type, required: sf.Type.Kind() != reflect.Pointer && !slices.Contains(strings.Split(options, ","), "omitempty")}
		if err := f.tags(sf.Tag.Get("agent")); err != nil {
			return err
		}
		if err := readable(sf.Type, above); err != nil {
			return fault.New(fault.Invalid, "the field %q of the model %v: %v", name, t, err)
		}
		m.fields = append(m.fields, f)
	}
	return nil
}

func (f *field) tags(tag string) error {
	for option := range strings.SplitSeq(tag, ",") {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "":
		case "optional":
			f.required = false
		case "strict":
			f.strict = true
		case "writeonly":
			f.writeOnly = true
		case "min", "max":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return fault.New(fault.Invalid, "the field %q has a bound that is no integer: %q", f.name, option)
			}
			if key == "min" {
				f.min = &n
			} else {
				f.max = &n
			}
		default:
			return fault.New(fault.Invalid, "the field %q has the unknown tag %q", f.name, option)
		}
	}
	return nil
}

func readable(t reflect.Type, above []reflect.Type) error {
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return nil
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return nil
		}
	case reflect.Pointer, reflect.Slice:
		return readable(t.Elem(), above)
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			return readable(t.Elem(), above)
		}
	case reflect.Struct:
		_, err := of(t, above)
		return err
	}
	return fault.New(fault.Invalid, "JSON cannot be read into %v", t)
}

// Partial returns a model of the same fields of which none is required: for objects that are laid over defaults.
func (m *Model) Partial() *Model {
	p := &Model{fields: slices.Clone(m.fields), byName: map[string]*field{}}
	for i := range p.fields {
		f := &p.fields[i]
		f.required = false
		p.byName[f.name] = f
	}
	return p
}

// Required returns the names of the fields that must be given, in the struct's order.
func (m *Model) Required() []string { return m.names(func(f field) bool { return f.required }) }

// Optional returns the names of the other fields, in the struct's order.
func (m *Model) Optional() []string { return m.names(func(f field) bool { return !f.required }) }

// Names returns the names of all fields, in the struct's order.
func (m *Model) Names() []string { return m.names(func(field) bool { return true }) }

// Has reports whether the model has the field.
func (m *Model) Has(name string) bool { return m.byName[name] != nil }

// WriteOnly reports whether the field must never be read back.
func (m *Model) WriteOnly(name string) bool {
	f := m.byName[name]
	return f != nil && f.writeOnly
}

func (m *Model) names(want func(field) bool) []string {
	out := []string{}
	for _, f := range m.fields {
		if want(f) {
			out = append(out, f.name)
		}
	}
	return out
}

// Encode returns the fields of a struct of the model as an object: nil pointers and interfaces are left out, nil lists and maps too unless
// they are required, and then they are empty.
func (m *Model) Encode(v any) map[string]any {
	rv := reflect.ValueOf(v)
	for rv.Kind() == reflect.Pointer {
		rv = rv.Elem()
	}
	out := map[string]any{}
	for _, f := range m.fields {
		fv := rv.FieldByIndex(f.index)
		switch fv.Kind() {
		case reflect.Pointer, reflect.Interface:
			if fv.IsNil() {
				continue
			}
		case reflect.Map, reflect.Slice:
			if fv.IsNil() && !f.required {
				continue
			}
			if fv.IsNil() && fv.Kind() == reflect.Map {
				fv = reflect.MakeMap(f.typ)
			} else if fv.IsNil() {
				fv = reflect.MakeSlice(f.typ, 0, 0)
			}
		}
		out[f.name] = fv.Interface()
	}
	return out
}
