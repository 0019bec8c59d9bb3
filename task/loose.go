package task

import (
	"strings"

	"agentenv/store/doc"
)

// adapted returns what a field of a stored step means. Other writers stored fields unchecked: a number may stand as text or a
// name as a number, and what is empty, 0 or false was as good as absent to them. The result may still be no value of the field.
func (f *Field) adapted(v any) any {
	out := Adapt(v, f.Kind)
	if list, ok := v.([]any); ok && f.Kind == List {
		items := make([]any, len(list))
		for i, item := range list {
			items[i] = Adapt(item, f.Items)
		}
		out = items
	}
	if f.problem(out) != "" && !Truthy(v) {
		return nil
	}
	return out
}

// Adapt returns v as a value of the kind where it can only mean that one: a text that is a number as the number, a number as its
// text, anything at all as a boolean by its truth. Any other v comes back as it is.
func Adapt(v any, k FieldKind) any {
	switch k {
	case String:
		if n, ok := v.(doc.Number); ok {
			return numberLiteral(n)
		}
	case Integer, NumberKind:
		s, _ := v.(string)
		if n, err := doc.Parse([]byte(strings.TrimSpace(s)), doc.Options{}); err == nil && isKind(n, k) {
			return n
		}
	case Boolean:
		return Truthy(v)
	}
	return v
}

// Truthy tells whether a value of a document counts as true to readers of such documents: null, false, 0 and what is empty do not.
func Truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case doc.Number:
		return v.Float64() != 0
	case []any:
		return len(v) > 0
	case *doc.Object:
		return v.Len() > 0
	}
	return true
}
