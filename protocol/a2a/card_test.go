package a2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentenv/protocol/a2a"
	"agentenv/protocol/card"
)

const (
	cardPath   = "/.well-known/agent-card.json"
	legacyPath = "/.well-known/agent.json"
)

func TestCard(t *testing.T) {
	t.Parallel()
	p := serve(t, answering(), a2a.Settings{})
	_, one, _ := p.do("GET", cardPath, "")
	_, two, _ := p.do("GET", legacyPath, "")
	if one != two {
		t.Errorf("the two cards differ:\n%s\n%s", one, two)
	}
	want := `{"capabilities":{"extensions":[],"pushNotifications":false,"stateTransitionHistory":false,"streaming":false},"defaultInputModes":["text"],` +
		`"defaultOutputModes":["text"],"description":"An agent for tests","name":"Test","preferredTransport":"JSONRPC","protocolVersion":"0.3.0","skills":[],"url":"/a2a","version":"1"}`
	if one != want {
		t.Error(one)
	}
	if _, text, _ := p.do("GET", "/health", ""); text != `{"status":"ok"}` {
		t.Error(text)
	}
}

func TestCardURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, path string }{ // path "" = refused
		{"", "/a2a"}, {"/x/y", "/x/y"}, {"https://h/custom/a2a", "/custom/a2a"}, {"http://h:1/r", "/r"},
		{"a2a", ""}, {"//h/x", ""}, {"ftp://h/x", ""}, {"/a?b", ""}, {"/a#b", ""}, {"/a?", ""}, {"http:///x", ""}, {"https://u:p@h/x", ""},
	} {
		agent := answering()
		agent.Identity.URL = c.url
		server, err := a2a.New(t.Context(), agent, a2a.Settings{StagingMaxBytes: -1})
		if err != nil {
			if c.path != "" {
				t.Errorf("%q: %v", c.url, err)
			}
			continue
		}
		p := &peer{t: t}
		p.serveBare(server)
		if c.path == "" {
			t.Errorf("%q is taken", c.url)
		} else if status, text, _ := p.do("POST", c.path, `{}`); status != 200 || !strings.Contains(text, "-32600") {
			t.Errorf("%q: %d %s", c.url, status, text)
		}
		want := c.url
		if want == "" {
			want = "/a2a"
		}
		if of, err := server.Card(); err != nil || of.URL != want {
			t.Errorf("%q: %v %v", c.url, of, err)
		}
		if err := server.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

type cardConfig struct {
	a2a.BaseConfig
	Model  string `json:"model"`
	Key    string `json:"key" agent:"writeonly"`
	Count  int    `json:"maxCount" agent:"min=1"`
	Limits *struct {
		Cap float64 `json:"cap"`
	} `json:"limits"`
}

func TestCardOfExtensions(t *testing.T) {
	t.Parallel()
	agent := answering()
	agent.Config = func() any { return &cardConfig{BaseConfig: a2a.DefaultBase()} }
	type in struct {
		A string `json:"a"`
		B *int   `json:"b"`
	}
	type other struct {
		A string `json:"a"`
		C int    `json:"c"`
	}
	type out struct {
		N int     `json:"n"`
		O *string `json:"o"`
	}
	one := func(context.Context, in) (out, error) { return out{}, nil }
	two := func(context.Context, other) (out, error) { return out{}, nil }
	agent.Extensions = []a2a.Extension{
		a2a.MCPConfig(), a2a.Trajectory(true), a2a.Install(map[string]any{"a2a_port": 8000}),
		{URI: "urn:example:x/v1", Description: "X", Required: true, Params: map[string]any{"level": 3, "methods": map[string]any{"cases": map[string]any{"note": "n"}}},
			Operations: []a2a.Operation{
				a2a.Op("single", one).At("POST", "/x"),
				a2a.Cases("cases", a2a.Case("one", one), a2a.Case("two", two), a2a.Case("off", one).When(false)).At("PUT", "/x"),
				a2a.Op("elsewhere", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }).At("GET", "/y"),
			}},
	}
	p := serve(t, agent, a2a.Settings{StagingDir: t.TempDir(), StagingMaxBytes: 1000})
	_, text, _ := p.do("GET", cardPath, "")
	o := parse(t, text)
	var uris []string
	for i := range o.at("capabilities", "extensions").([]any) {
		uris = append(uris, o.text("capabilities", "extensions", i, "uri"))
	}
	want := []string{card.AgentConfig, card.MCPConfig, card.Trajectory, card.Install, "urn:example:x/v1", card.Staging}
	if fmt.Sprint(uris) != fmt.Sprint(want) {
		t.Errorf("%v", uris)
	}
	for _, c := range []struct {
		at   []any
		want string
	}{
		{[]any{0, "params", "methods", "set", "request", "supported"}, `["description","key","limits","maxCount","model","name","role","timeout_seconds"]`},
		{[]any{0, "params", "methods", "set", "request", "schema", "properties", "key"}, `{"type":"string","writeOnly":true}`},
		{[]any{0, "params", "methods", "set", "request", "schema", "properties", "maxCount"}, `{"minimum":1,"type":"integer"}`},
		{[]any{0, "params", "methods", "set", "request", "schema", "additionalProperties"}, `false`},
		{[]any{1, "params", "methods", "add"}, `{"method":"POST","request":{"optional":["headers","name"],"required":["url"]},"response":{"required":["status","name","url"]}}`},
		{[]any{1, "params", "endpoint"}, `"/ext/mcp-config"`},
		{[]any{2, "params", "methods", "get", "request"}, `{"oneOf":[{"required":["task_id"]},{"required":["task_id","objects"]},{"required":["context_id"]},` +
			`{"required":["context_id","objects"]},{"optional":["limit"],"required":["task_id","after"]},{"optional":["limit"],"required":["context_id","after"]}]}`},
		{[]any{3, "params"}, `{"a2a_port":8000}`},
		{[]any{4}, `{"description":"X","params":{"endpoint":"/x","level":3,"methods":{"cases":{"method":"PUT","note":"n","request":{"oneOf":[{"optional":["b"]},` +
			`{"required":["c"]}],"required":["a"]}},"elsewhere":{"endpoint":"/y","method":"GET"},"single":{"method":"POST","request":{"optional":["b"],"required":["a"]},` +
			`"response":{"optional":["o"],"required":["n"]}}}},"required":true,"uri":"urn:example:x/v1"}`},
		{[]any{5, "params"}, `{"endpoint":"/ext/staging","max_bytes":1000}`},
	} {
		got, _ := json.Marshal(o.at(append([]any{"capabilities", "extensions"}, c.at...)...))
		if string(got) != c.want {
			t.Errorf("%v:\n got %s\nwant %s", c.at, got, c.want)
		}
	}
	of, err := p.server.Card()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		uri, op string
		fields  []string
		want    bool
	}{
		{card.AgentConfig, "set", []string{"model"}, true}, {card.AgentConfig, "set", []string{"nope"}, false},
		{card.MCPConfig, "add", []string{"url"}, true}, {card.MCPConfig, "add", []string{"url", "headers", "name"}, true},
		{card.Trajectory, "get", []string{"task_id"}, true}, {card.Trajectory, "get", []string{"task_id", "after"}, true},
		{card.Trajectory, "get", []string{"task_id", "objects"}, true}, {card.Trajectory, "get", []string{"context_id", "task_id"}, false},
	} {
		if got := of.Extension(c.uri).Takes(c.op, c.fields...); got != c.want {
			t.Errorf("%s %s %v: %v", c.uri, c.op, c.fields, got)
		}
	}
}

func TestLiveOff(t *testing.T) {
	t.Parallel()
	agent := answering()
	agent.Extensions = []a2a.Extension{a2a.Trajectory(false)}
	p := serve(t, agent, a2a.Settings{})
	id := p.send(sending{text: "x"}).text("id")
	if got := p.ext("POST", "/ext/trajectory", `{"task_id":"`+id+`","after":0}`, 400); !strings.Contains(got.text("detail"), "unsupported request variant fields: after") {
		t.Errorf("%v", got)
	}
	_, text, _ := p.do("GET", cardPath, "")
	o := parse(t, text)
	if n := len(o.at("capabilities", "extensions", 0, "params", "methods", "get", "request", "oneOf").([]any)); n != 2 {
		t.Errorf("%d variants: %s", n, text)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	agent := answering()
	agent.Extensions = []a2a.Extension{a2a.MCPConfig(), a2a.Trajectory(true)}
	p := serve(t, agent, a2a.Settings{Token: "s3cr3t", StagingDir: t.TempDir()})
	send := `{"jsonrpc":"2.0","id":"1","method":"message/send","params":` + sending{text: "hi"}.params() + `}`
	for _, c := range []struct {
		method, path, body, authorization string
		want                              int
	}{
		{"GET", cardPath, "", "", 200}, {"GET", legacyPath, "", "", 200}, {"GET", "/health", "", "", 200},
		{"POST", "/a2a", send, "", 401}, {"POST", "/a2a", send, "Bearer nope", 401}, {"POST", "/a2a", send, "Basic s3cr3t", 401}, {"POST", "/a2a", send, "s3cr3t", 401},
		{"POST", "/a2a", send, "Bearer s3cr3t", 200}, {"POST", "/a2a", send, "bearer s3cr3t", 200},
		{"GET", "/ext/mcp-config", "", "", 401}, {"GET", "/ext/mcp-config", "", "Bearer s3cr3t", 200},
		{"PUT", "/ext/staging/0123456789012345678901/a", "x", "", 201}, // its path is the secret
	} {
		status, text, header := p.do(c.method, c.path, c.body, "Authorization", c.authorization)
		if status != c.want || (status == 401) != (header.Get("WWW-Authenticate") == "Bearer") {
			t.Errorf("%v: %d %s", c, status, text)
		}
	}
	of, err := p.server.Card()
	if err != nil || !of.Bearer() || fmt.Sprint(of.Document["security"]) != "[map[bearer:[]]]" {
		t.Errorf("%v %v", of, err)
	}
	if strings.Contains(p.log.String(), "s3cr3t") {
		t.Error(p.log)
	}
}

func TestSettingsFromTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  map[string]string
		want string // "" = refused
	}{
		{nil, " 0  0"}, {map[string]string{"A2A_HOST": "127.0.0.1", "A2A_PORT": "9000", "AGENTENV_A2A_TOKEN": "t"}, "127.0.0.1 9000 t 0"},
		{map[string]string{"AGENTENV_STAGING_MAX_BYTES": "0"}, " 0  -1"}, {map[string]string{"AGENTENV_STAGING_MAX_BYTES": "5"}, " 0  5"},
		{map[string]string{"AGENTENV_STAGING_MAX_BYTES": "-1"}, ""}, {map[string]string{"AGENTENV_STAGING_MAX_BYTES": "1.5"}, ""},
		{map[string]string{"A2A_PORT": "0"}, ""}, {map[string]string{"A2A_PORT": "65536"}, ""}, {map[string]string{"A2A_PORT": "x"}, ""},
	} {
		s, err := a2a.FromEnv(func(name string) string { return c.env[name] })
		got := fmt.Sprint(s.Host, " ", s.Port, " ", s.Token, " ", s.StagingMaxBytes)
		if err != nil {
			got = ""
		}
		if got != c.want {
			t.Errorf("%v: %q, %v", c.env, got, err)
		}
	}
}
