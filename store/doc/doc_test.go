package doc_test

import (
	"encoding/json"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store/doc"
)

func parse(t *testing.T, text string) any {
	t.Helper()
	v, err := doc.Parse([]byte(text), doc.Options{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestRewriteKeepsTheText(t *testing.T) {
	for _, text := range []string{
		`{"b": 1, "a": 1.0, "c": [true, null, "x"], "d": {}}`,
		`123456789012345678901234567890`,
		`-0.0`, `1e400`, `[]`, `{}`, `""`,
		`"\ud800 lone, \udc00 too"`,
		`"\u6771\u4eac \ud83d\ude00"`,
		`"tab\t quote\" back\\ bell\u0007 del"`,
	} {
		out, err := doc.Marshal(parse(t, text))
		if err != nil || string(out) != text {
			t.Errorf("%s came back as %s (%v)", text, out, err)
		}
	}
}

func TestReadersTakeWhatOldWritersWrote(t *testing.T) {
	v := parse(t, "\xEF\xBB\xBF{\"a\":NaN,\"b\":[Infinity,-Infinity],\"c\":1,\"c\":2}").(*doc.Object)
	if v.Value("a") != doc.Number("NaN") || v.Arr("b")[1] != doc.Number("-Infinity") || v.Value("c") != doc.Number("2") {
		t.Errorf("read %v", doc.Canonical(v))
	}
	if _, err := doc.Marshal(v); !fault.Is(err, fault.Invalid) {
		t.Errorf("NaN must not be written: %v", err)
	}
}

func TestStrictRefusesWhatPeopleShouldNotWrite(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"a":2}`: "duplicate key", `NaN`: "unexpected", `[Infinity]`: "unexpected", `1e999`: "beyond the range", `{"a":1,}`: "double quotes",
		`[1 2]`: "',' or ']'", `01`: "malformed number", `"a`: "without an end", "\"\x01\"": "control character", "\"\xff\"": "not UTF-8",
		strings.Repeat("[", 100_000): "too deeply", ``: "unexpected end", `1 1`: "after the value", "{\n  \"a\": tru}": "line 2 column 8",
	} {
		_, err := doc.Parse([]byte(text), doc.Options{Strict: true})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v, want %q", text, err, want)
		}
	}
}

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`1`, `1.0`, true}, {`1`, `true`, false}, {`1`, `"1"`, false}, {`0`, `-0.0`, true}, {`null`, `false`, false},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true}, {`[1,2]`, `[2,1]`, false}, {`{"a":null}`, `{}`, false},
		{`9007199254740993`, `9007199254740992`, false}, {`1e2`, `100`, true}, {`1e-999999999`, `0`, true}, {`1e-999999999`, `1`, false}, {`[]`, `{}`, false},
	} {
		a, b := parse(t, c.a), parse(t, c.b)
		if doc.Equal(a, b) != c.same || doc.Equal(b, a) != c.same {
			t.Errorf("Equal(%s, %s) is not %t", c.a, c.b, c.same)
		}
		if strings.Contains(c.a, "e-9") {
			continue // equal as far as a double goes; their texts differ
		}
		if same := doc.Canonical(a) == doc.Canonical(b); same != c.same {
			t.Errorf("Canonical of %s and %s: same is %t", c.a, c.b, same)
		}
	}
}

func TestFloatText(t *testing.T) {
	for f, want := range map[float64]string{1: "1.0", 0.1: "0.1", 1e21: "1e+21", 1e16: "1e+16", 123456789: "123456789.0", 1e-5: "1e-05", 0: "0.0", -2.5: "-2.5"} {
		if got := string(doc.Float(f)); got != want {
			t.Errorf("Float(%v) is %s, want %s", f, got, want)
		}
	}
}

func TestObjectKeepsOrderAndClones(t *testing.T) {
	o := doc.Of("z", "1", "a", "2", "m", "3")
	c := o.Clone().Set("n", "4")
	c.Delete("a")
	if got := strings.Join(o.Keys(), ""); got != "zam" {
		t.Errorf("the original changed: %s", got)
	}
	if got := strings.Join(c.Keys(), ""); got != "zmn" {
		t.Errorf("the clone has %s", got)
	}
	var none *doc.Object
	if none.Len() != 0 || none.Str("x") != "" || none.Obj("x").Arr("y") != nil {
		t.Error("a nil object reads like an empty one")
	}
}

func TestGoValues(t *testing.T) {
	type shape struct {
		B string      `json:"b"`
		A []int       `json:"a"`
		O *doc.Object `json:"o"`
	}
	v := doc.MustFrom(shape{"x", []int{1}, doc.Of("k", doc.Float(1))})
	if out, _ := doc.Marshal(v); string(out) != `{"b": "x", "a": [1], "o": {"k": 1.0}}` {
		t.Errorf("wrote %s", out)
	}
	var back shape
	if err := doc.Into(v, &back); err != nil || back.O.Value("k") != doc.Number("1.0") {
		t.Errorf("read %+v, %v", back, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x\ud800"],"b":null}`, `[NaN,-Infinity]`, `"\u00e9"`, `{"a":{"a":{}}}`, `1e-7`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := doc.Parse(text, doc.Options{Strict: true})
		if err != nil {
			return
		}
		out, err := doc.Marshal(v)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if !json.Valid(out) {
			t.Fatalf("wrote invalid JSON %q", out)
		}
		back, err := doc.Parse(out, doc.Options{Strict: true})
		if err != nil || !doc.Equal(v, back) {
			t.Fatalf("%q came back as %q (%v)", text, out, err)
		}
	})
}
