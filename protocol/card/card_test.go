package card

import "testing"

func TestAccepts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, request string
		fields        []string
		want          bool
	}{
		{"exactly what is required", `{"required":["a"]}`, []string{"a"}, true},
		{"something required is missing", `{"required":["a","b"]}`, []string{"a"}, false},
		{"optional and supported", `{"required":["a"],"optional":["b"],"supported":["c"]}`, []string{"a", "b", "c"}, true},
		{"one that is not declared", `{"required":["a"],"optional":["b"]}`, []string{"a", "x"}, false},
		{"null lists are empty", `{"required":null,"optional":null,"oneOf":null}`, nil, true},
		{"a branch", `{"required":["a"],"oneOf":[{"required":["b"]},{"required":["c"],"optional":["d"]}]}`, []string{"a", "c", "d"}, true},
		{"fields of two branches", `{"oneOf":[{"required":["b"]},{"required":["c"]}]}`, []string{"b", "c"}, false},
		{"no branch", `{"oneOf":[{"required":["b"]},{"required":["c"]}]}`, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := parse(t, `{"capabilities":{"extensions":[{"uri":"u","params":{"methods":{"op":{"request":`+c.request+`}}}}]}}`).Extension("u")
			if got := x.Takes("op", c.fields...); got != c.want {
				t.Errorf("accepts %v: %v", c.fields, got)
			}
		})
	}
	if (*Request)(nil).Accepts("a") || !(*Request)(nil).Accepts() {
		t.Error("no request takes the empty body alone")
	}
}

func parse(t *testing.T, text string) *Card {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOperation(t *testing.T) {
	t.Parallel()
	card := func(params string) *Extension {
		return parse(t, `{"capabilities":{"extensions":[{"uri":"`+Triggers+`",`+params+`}]}}`).Extension(Triggers)
	}
	for _, c := range []struct{ name, params, op, want string }{
		{"the protocol's own", `"params":{}`, "decide", "/ext/triggers/decide"},
		{"an endpoint moves only what is served at it", `"params":{"endpoint":"/x"}`, "decide", "/ext/triggers/decide"},
		{"the endpoint", `"params":{"endpoint":"/x"}`, "state", "/x"},
		{"the method's own endpoint", `"params":{"endpoint":"/x","methods":{"decide":{"endpoint":"/y"}}}`, "decide", "/y"},
		{"config goes before params", `"params":{"endpoint":"/x"},"config":{"endpoint":"/z"}`, "state", "/z"},
		{"an operation of its own", `"params":{"endpoint":"/x"}`, "other", "/x"},
		{"nothing known", `"params":{}`, "other", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := card(c.params).Operation(c.op).Path; got != c.want {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{``, `[]`, `5`, `null`, `{`} {
		if c, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%s: %v", bad, c)
		}
	}
	c := parse(t, `{"name":5,"url":"/a2a","capabilities":{"streaming":true,"extensions":[5,{"uri":""},{"uri":"u","required":true}]},
		"securitySchemes":{"b":{"type":"http","scheme":"Bearer"}}}`)
	if c.Name != "" || c.URL != "/a2a" || !c.Streaming || len(c.Extensions) != 1 || !c.Extensions[0].Required || !c.Bearer() {
		t.Errorf("%+v", c)
	}
	if c.Extension("none").Takes("op") {
		t.Error("an extension that is not there takes a body")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"capabilities":{"extensions":[{"uri":"urn:agentenv:triggers/v1","params":{"methods":{"state":{"request":{"oneOf":[{}]}}}}}]}}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		for i := range c.Extensions {
			_ = c.Extensions[i].Takes("state", "a")
		}
		_ = c.Bearer()
	})
}
