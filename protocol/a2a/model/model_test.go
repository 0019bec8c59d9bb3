package model_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/protocol/a2a/model"
)

type base struct {
	Name *string `json:"name"`
}

type even int

func (e *even) UnmarshalJSON(text []byte) error {
	var n int
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	if n%2 != 0 {
		return fault.New(fault.Invalid, "must be even")
	}
	*e = even(n)
	return nil
}

type item struct {
	N int `json:"n"`
}

type sample struct {
	base
	Text  string            `json:"text" agent:"min=2,max=4"`
	Count int64             `json:"count" agent:"strict,min=-1,max=5"`
	Loose int               `json:"loose,omitempty"`
	Ratio float64           `json:"ratio" agent:"optional"`
	On    bool              `json:"on" agent:"optional"`
	List  []item            `json:"list" agent:"optional,max=2"`
	Map   map[string]string `json:"map" agent:"optional"`
	Any   any               `json:"any" agent:"optional,writeonly"`
	Even  *even             `json:"even"`
	Plain string
}

// Validate refuses one pair of values.
func (s *sample) Validate() error {
	if s.Text == "bad" {
		return errors.New("text and count do not fit")
	}
	return nil
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestDecode(t *testing.T) {
	t.Parallel()
	m, err := model.Of(sample{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ body, want string }{ // want: the struct, or what the problems say
		{`{"text":"ab","count":5}`, `{"name":null,"text":"ab","count":5,"ratio":0,"on":false,"list":null,"map":null,"any":null,"even":null`},
		{`{"text":"ab","count":-1,"loose":"61.0","ratio":2,"on":"off","list":[{"n":1}],"map":{"a":"b"},"any":[1.50],"even":4,"name":"x"}`,
			`{"name":"x","text":"ab","count":-1,"loose":61,"ratio":2,"on":false,"list":[{"n":1}],"map":{"a":"b"},"any":[1.50],"even":4`},
		{`{"text":"éé","count":0,"loose":9223372036854775807}`, `"loose":9223372036854775807`},
		{`{}`, `missing ["text"] missing ["count"]`},
		{`{"text":"a","count":9,"x":1,"b":2}`, `too_short ["text"] less_than_equal ["count"] extra_forbidden ["b"] extra_forbidden ["x"]`},
		{`{"text":"abcde","count":-2}`, `too_long ["text"] greater_than_equal ["count"]`},
		{`{"text":"ab","count":true}`, `int_type ["count"]`},
		{`{"text":"ab","count":1.0}`, `int_type ["count"]`},
		{`{"text":"ab","count":1,"loose":true}`, `int_type ["loose"]`},
		{`{"text":"ab","count":1,"loose":"0x10"}`, `int_type ["loose"]`},
		{`{"text":"ab","count":1,"loose":"1_0"}`, `int_type ["loose"]`},
		{`{"text":"ab","count":1,"loose":1e999999999}`, `int_type ["loose"]`},
		{`{"text":"ab","count":1,"loose":9223372036854775808}`, `int_type ["loose"]`},
		{`{"text":"ab","count":1,"loose":1.00000000000000000001}`, `int_type ["loose"]`},
		{`{"text":"ab","count":1,"ratio":"inf"}`, `float_type ["ratio"]`},
		{`{"text":"ab","count":1,"on":null}`, `bool_type ["on"]`},
		{`{"text":"ab","count":1,"list":[{"n":1},{"n":"x"},{}]}`, `int_type ["list",1,"n"] missing ["list",2,"n"]`},
		{`{"text":"ab","count":1,"list":[{"n":1},{"n":1},{"n":1}]}`, `too_long ["list"]`},
		{`{"text":"ab","count":1,"list":[5],"map":{"b":1,"a":2}}`, `object_type ["list",0] string_type ["map","a"] string_type ["map","b"]`},
		{`{"text":"ab","count":1,"list":{},"map":[]}`, `list_type ["list"] dict_type ["map"]`},
		{`{"text":"ab","count":1,"even":3}`, `value_error ["even"] must be even`},
		{`{"text":"ab","count":1,"even":"s3cr3t"}`, `value_error ["even"] the value is not one the field takes`},
		{`{"text":"bad","count":1}`, `value_error [] text and count do not fit`},
	} {
		var s sample
		problems := m.Decode(object(t, c.body), &s)
		got, _ := json.Marshal(s)
		if len(problems) > 0 {
			got = nil
			for _, p := range problems {
				loc, _ := json.Marshal(p.Loc)
				got = fmt.Appendf(got, "%s %s %s ", p.Type, loc, p.Msg)
			}
		}
		at := 0
		for _, word := range strings.Fields(c.want) {
			i := bytes.Index(got[at:], []byte(word))
			if i < 0 {
				t.Errorf("%s:\n got %s\nwant %s", c.body, got, c.want)
				break
			}
			at += i
		}
		if strings.Contains(problems.Error(), "s3cr3t") {
			t.Error(problems)
		}
	}
}

func TestProblemsAreAJSONArray(t *testing.T) {
	t.Parallel()
	m, err := model.Of(sample{})
	if err != nil {
		t.Fatal(err)
	}
	var s sample
	got := m.Decode(object(t, `{"text":"ab","count":6}`), &s).Error()
	if got != `[{"type":"less_than_equal","loc":["count"],"msg":"must be at most 5","ctx":{"le":5}}]` {
		t.Error(got)
	}
}

func TestFieldsAndSchema(t *testing.T) {
	t.Parallel()
	m, err := model.Of(&sample{})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(m.Required(), m.Optional(), m.Partial().Required(), m.WriteOnly("any"), m.WriteOnly("text"), m.Has("Plain")); got !=
		"[text count] [name loose ratio on list map any even] [] true false false" {
		t.Error(got)
	}
	text, _ := json.Marshal(m.Schema())
	want := `{"additionalProperties":false,"properties":{"any":{"writeOnly":true},"count":{"maximum":5,"minimum":-1,"type":"integer"},"even":{"anyOf":[{},{"type":"null"}]},` +
		`"list":{"items":{"additionalProperties":false,"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"},"maxItems":2,"type":"array"},"loose":{"type":"integer"},` +
		`"map":{"additionalProperties":{"type":"string"},"type":"object"},"name":{"anyOf":[{"type":"string"},{"type":"null"}]},"on":{"type":"boolean"},"ratio":{"type":"number"},` +
		`"text":{"maxLength":4,"minLength":2,"type":"string"}},"required":["text","count"],"type":"object"}`
	if string(text) != want {
		t.Errorf("\n got %s\nwant %s", text, want)
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	type out struct {
		List  []int          `json:"list"`
		Map   map[string]any `json:"map"`
		None  []int          `json:"none" agent:"optional"`
		Maybe *string        `json:"maybe"`
		Any   any            `json:"any"`
	}
	m, err := model.Of(out{})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(m.Encode(&out{}))
	if string(text) != `{"list":[],"map":{}}` {
		t.Error(string(text))
	}
}

func TestTypesThatAreNoModel(t *testing.T) {
	t.Parallel()
	type loop struct {
		Next *loop `json:"next"`
	}
	for name, v := range map[string]any{
		"nothing": nil, "a number": 5, "itself": loop{},
		"a function": struct {
			F func() `json:"f"`
		}{},
		"a key that is a number": struct {
			M map[int]string `json:"m"`
		}{},
		"an interface with methods": struct {
			E error `json:"e"`
		}{},
		"a bound that is none": struct {
			N int `json:"n" agent:"min=x"`
		}{},
	} {
		if _, err := model.Of(v); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"text":"ab","count":1,"loose":"61.0","ratio":1e9,"list":[{"n":1}],"map":{"a":"b"},"even":4}`))
	f.Add([]byte(`{"text":"ab","count":1,"loose":1e19}`))
	m, err := model.Of(sample{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var o map[string]any
		if d.Decode(&o) != nil {
			return
		}
		var s sample
		if problems := m.Decode(o, &s); len(problems) > 0 {
			return
		}
		again, err := json.Marshal(m.Encode(s))
		if err != nil {
			t.Fatal(err)
		}
		var twin sample
		if problems := m.Decode(object(t, string(again)), &twin); len(problems) > 0 {
			t.Fatalf("%s: what was read is refused as %s: %v", text, again, problems)
		}
	})
}
