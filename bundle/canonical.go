package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"sort"
	"strings"

	"agentenv/store/doc"
)

// canonical writes a value as the ledger hashes it: keys sorted, no white space, everything outside ASCII escaped, floats in
// their shortest text, integers and floats kept apart.
func canonical(v any) string {
	var b strings.Builder
	writeCanonical(&b, v)
	return b.String()
}

func writeCanonical(b *strings.Builder, v any) {
	switch v := v.(type) {
	case *doc.Object:
		keys := append([]string(nil), v.Keys()...)
		sort.Strings(keys)
		b.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				b.WriteByte(',')
			}
			writeScalar(b, k)
			b.WriteByte(':')
			writeCanonical(b, v.Value(k))
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeCanonical(b, x)
		}
		b.WriteByte(']')
	case doc.Number:
		switch {
		case v == "-0":
			b.WriteByte('0')
		case v.IsInt():
			b.WriteString(string(v))
		default:
			b.WriteString(string(doc.Float(v.Float64())))
		}
	default:
		writeScalar(b, v)
	}
}

func writeScalar(b *strings.Builder, v any) {
	text, err := doc.Compact(v)
	if err != nil { // only values that no parser gives fail here
		panic(err)
	}
	b.Write(text)
}

// digestOf returns "sha256:<hex>" of a value's canonical form.
func digestOf(v any) string {
	sum := sha256.Sum256([]byte(canonical(v)))
	return "sha256:" + hex.EncodeToString(sum[:])
}
