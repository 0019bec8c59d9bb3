package deploy

import (
	"strings"

	"agentenv/store/doc"
)

// HiddenText returns a text with each of the secrets replaced by "***".
func HiddenText(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	return text
}

// Hidden returns a document value, keys included, without secrets that an agent put into it. The value itself is left as it is.
func Hidden(v any, secrets []string) any {
	switch v := v.(type) {
	case string:
		return HiddenText(v, secrets)
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = Hidden(inner, secrets)
		}
		return out
	case *doc.Object:
		if v == nil {
			return v
		}
		out := doc.Of()
		for _, k := range v.Keys() {
			out.Set(HiddenText(k, secrets), Hidden(v.Value(k), secrets))
		}
		return out
	}
	return v
}
