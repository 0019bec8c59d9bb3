package model

import "reflect"

// Schema returns the JSON Schema of the model: a closed object, without defaults, write-only fields marked.
func (m *Model) Schema() map[string]any {
	properties := map[string]any{}
	for _, f := range m.fields {
		s := schema(f.typ)
		if f.writeOnly {
			s["writeOnly"] = true
		}
		f.bounds(s)
		properties[f.name] = s
	}
	out := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if r := m.Required(); len(r) > 0 {
		out["required"] = r
	}
	return out
}

func (f *field) bounds(s map[string]any) {
	low, high := "minLength", "maxLength"
	switch s["type"] {
	case "integer", "number":
		low, high = "minimum", "maximum"
	case "array":
		low, high = "minItems", "maxItems"
	case "object":
		low, high = "minProperties", "maxProperties"
	}
	if f.min != nil {
		s[low] = *f.min
	}
	if f.max != nil {
		s[high] = *f.max
	}
}

func schema(t reflect.Type) map[string]any {
	if t.Kind() == reflect.Pointer {
		return map[string]any{"anyOf": []any{schema(t.Elem()), map[string]any{"type": "null"}}}
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schema(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schema(t.Elem())}
	case reflect.Struct:
		if m, err := Of(t); err == nil {
			return m.Schema()
		}
	}
	return map[string]any{}
}
