package doc_test

import (
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store/doc"
)

func TestParseTop(t *testing.T) {
	const text = `{"id": "a\u00e9", "big": {"x": [1, {"y": "}\"]\\\\"}], "z": null}, "n": -1.5e3, "e": {}, "t": true, "last": ["\\"]}`
	for _, needed := range []string{"", "id", "big", "n last", "id big n e t last"} {
		o, err := doc.ParseTop([]byte(text), func(k string) bool { return strings.Contains(" "+needed+" ", " "+k+" ") })
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range o.Keys() {
			if _, raw := o.Value(k).(doc.Raw); raw == strings.Contains(" "+needed+" ", " "+k+" ") {
				t.Errorf("needed %q: %s is raw: %v", needed, k, raw)
			}
		}
		out, err := doc.Marshal(o)
		if err != nil || string(out) != text {
			t.Errorf("needed %q: %s, %v", needed, out, err)
		}
	}
	for _, bad := range []string{"", "5", "[]", "{", `{"a"`, `{"a":`, `{"a":}`, `{"a":,"b":1}`, `{"a":"x}`, `{"a":[1}`[:6], `{"a":1 "b":2}`, `{"a":1}x`, `{a:1}`, `{"a":]}`} {
		if o, err := doc.ParseTop([]byte(bad), func(string) bool { return false }); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v, %v", bad, o, err)
		}
	}
}

// FuzzParseTop holds that what ParseTop does not read comes out with the same meaning as when it is read.
func FuzzParseTop(f *testing.F) {
	for _, s := range []string{`{}`, `{"a": 1, "b": [{"c": "\""}], "a": "x"}`, "{\"a\":\n{\"b\" :[ ] } }", `{"a": -Infinity}`, `{"\ud800": "\\\\"}`} {
		f.Add([]byte(s), byte(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, which byte) {
		whole, werr := doc.ParseObject(text, doc.Options{})
		top, err := doc.ParseTop(text, func(k string) bool { return len(k)%2 == int(which%2) })
		if werr != nil || err != nil {
			if werr == nil && !strings.HasPrefix(string(text), "\xef\xbb\xbf") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		out, err := doc.Marshal(top)
		if err != nil {
			return // a NaN among what was read
		}
		again, err := doc.ParseObject(out, doc.Options{})
		if err != nil || doc.Canonical(again) != doc.Canonical(whole) {
			t.Fatalf("%q became %q, %v", text, out, err)
		}
	})
}
