package task

import (
	"fmt"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// ownFields takes the type's own fields out of a step document: checked against the table, in its order, with defaults
// filled in. Shorthands (Input) that were not given are left out.
func (k *StepType) ownFields(d *doc.Object, o ParseOptions) (*doc.Object, error) {
	fields := &doc.Object{}
	for i := range k.Fields {
		f := &k.Fields[i]
		v, given := d.Get(f.Name)
		if o.Stored && given {
			if f.Loose {
				fields.Set(f.Name, v)
				continue
			}
			v = f.adapted(v)
		}
		if v == nil {
			if f.Required {
				return nil, fault.New(fault.Invalid, "field %q is missing; it needs %s", f.Name, f.needs())
			}
			if f.Input && !given {
				continue
			}
			v = f.Default
		} else if p := f.problem(v); p != "" {
			return nil, fault.New(fault.Invalid, "field %q %s", f.Name, p)
		}
		fields.Set(f.Name, v)
	}
	if o.Strict {
		for _, key := range d.Keys() {
			if slices.Contains(baseFields, key) {
				continue
			}
			if !slices.ContainsFunc(k.Fields, func(f Field) bool { return f.Name == key }) {
				return nil, fault.New(fault.Invalid, "field %q is not known; a %s takes %s", key, k.Name, k.fieldNames())
			}
		}
	}
	return fields, nil
}

// checkGiven checks a step whose type is not built in this version: its table names only what refers to other entities.
func (k *StepType) checkGiven(d *doc.Object) error {
	for i := range k.Fields {
		f := &k.Fields[i]
		if v := d.Value(f.Name); v != nil {
			if p := f.problem(v); p != "" {
				return fault.New(fault.Invalid, "field %q %s", f.Name, p)
			}
		} else if f.Required {
			return fault.New(fault.Invalid, "field %q is missing; it needs %s", f.Name, f.needs())
		}
	}
	return nil
}

// verbatim takes everything but the base fields out of a step's document, so that nothing of it is lost.
func verbatim(d *doc.Object) *doc.Object {
	fields := &doc.Object{}
	for _, key := range d.Keys() {
		if !slices.Contains(baseFields, key) {
			fields.Set(key, d.Value(key))
		}
	}
	return fields
}

func (k *StepType) fieldNames() string {
	names := append([]string(nil), baseFields...)
	for _, f := range k.Fields {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

func (f *Field) needs() string {
	if len(f.Enum) > 0 {
		return "one of " + strings.Join(f.Enum, ", ")
	}
	if (f.Kind == List || f.Kind == ObjectKind) && f.Items != "" && f.Items != Any {
		return fmt.Sprintf("%s of %s values", article(f.Kind), f.Items)
	}
	return article(f.Kind)
}

func article(k FieldKind) string {
	switch k {
	case Any:
		return "a value"
	case Integer, ObjectKind:
		return "an " + string(k)
	}
	return "a " + string(k)
}

// problem says what is wrong with a value that is not null, "" when nothing is.
func (f *Field) problem(v any) string {
	if !isKind(v, f.Kind) || (len(f.Enum) > 0 && !slices.Contains(f.Enum, fmt.Sprint(v))) {
		return fmt.Sprintf("needs %s, not %s", f.needs(), Brief(v))
	}
	if f.Items == "" || f.Items == Any {
		return ""
	}
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			if !isKind(item, f.Items) {
				return fmt.Sprintf("needs %s, and item %d is %s", f.needs(), i, Brief(item))
			}
		}
	case *doc.Object:
		for _, key := range v.Keys() {
			if item, _ := v.Get(key); !isKind(item, f.Items) {
				return fmt.Sprintf("needs %s, and %q is %s", f.needs(), key, Brief(item))
			}
		}
	}
	return ""
}

func isKind(v any, k FieldKind) bool {
	switch k {
	case String:
		_, ok := v.(string)
		return ok
	case Integer:
		_, ok := wholeNumber(v)
		return ok
	case NumberKind:
		n, ok := v.(doc.Number)
		return ok && n.Finite()
	case Boolean:
		_, ok := v.(bool)
		return ok
	case ObjectKind:
		_, ok := v.(*doc.Object)
		return ok
	case List:
		_, ok := v.([]any)
		return ok
	}
	return true
}

// wholeNumber returns v as an integer: 3 and 3.0 are, 3.5, "3" and true are not.
func wholeNumber(v any) (int64, bool) { return doc.Of("v", v).Int("v") }

// Brief writes a document value for a message: its type and the start of its text.
func Brief(v any) string {
	if v == nil {
		return "null"
	}
	text, err := doc.Compact(v)
	if err != nil {
		return doc.TypeName(v)
	}
	s := string(text)
	if len(s) > 60 {
		s = s[:57] + "..."
	}
	return doc.TypeName(v) + " " + s
}
