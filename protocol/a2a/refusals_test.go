package a2a_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/card"
)

func nothing(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }

func TestAgentsThatDoNotStart(t *testing.T) {
	t.Parallel()
	op := func(name, method, path string) a2a.Operation { return a2a.Op(name, nothing).At(method, path) }
	own := func(ops ...a2a.Operation) func(*a2a.Agent) {
		return func(a *a2a.Agent) { a.Extensions = append(a.Extensions, a2a.Extension{URI: "urn:x", Operations: ops}) }
	}
	with := func(exts ...a2a.Extension) func(*a2a.Agent) {
		return func(a *a2a.Agent) { a.Extensions = exts }
	}
	mount := func(paths ...string) a2a.Extension {
		e := a2a.Extension{URI: "urn:m", Mounts: map[string]a2a.Mount{}}
		for _, p := range paths {
			e.Mounts[p] = a2a.Mount{Handler: http.NotFoundHandler()}
		}
		return e
	}
	for name, c := range map[string]struct {
		change func(*a2a.Agent)
		says   []string
	}{
		"no code": {func(a *a2a.Agent) { a.Run = nil }, []string{"Run", "Stream"}},
		"two codes": {func(a *a2a.Agent) {
			a.Stream = func(context.Context, *a2a.Request, a2a.Emit) (a2a.Result, error) { return a2a.Result{}, nil }
		}, []string{"Run", "Stream"}},
		"no name": {func(a *a2a.Agent) { a.Identity.Name = "" }, []string{"name"}},
		"a start that fails": {func(a *a2a.Agent) {
			a.Start = func(context.Context) (func(context.Context) error, error) { return nil, errors.New("why") }
		}, []string{"Test", "why"}},
		"an operation without name": {own(op("", "GET", "/x")), []string{"no name"}},
		"an operation without path": {own(op("o", "GET", "")), []string{"path"}},
		"an operation of HEAD":      {own(op("o", "HEAD", "/x")), []string{"method"}},
		"no handler":                {own(a2a.Op[struct{}, struct{}]("o", nil).At("GET", "/x")), []string{`"o"`, "handler"}},
		"no handler of a form":      {own(a2a.Cases("o", a2a.Case("a", nothing), a2a.Case[struct{}, struct{}]("b", nil)).At("GET", "/x")), []string{`"o"`, `"b"`}},
		"no form enabled":           {own(a2a.Cases("o", a2a.Case("a", nothing).When(false)).At("GET", "/x")), []string{`"o"`, "handler"}},
		"no operation":              {own(), []string{"urn:x", "no operation"}},
		"a request that is no JSON": {own(a2a.Op("o", func(context.Context, struct {
			C chan int `json:"c"`
		}) (struct{}, error) {
			return struct{}{}, nil
		}).At("POST", "/x")), []string{`"o"`, `"c"`}},
		"two operations of a name":   {own(op("o", "GET", "/x"), op("o", "GET", "/y")), []string{"two operations", `"o"`}},
		"two operations at a route":  {own(op("o", "GET", "/x"), op("p", "GET", "/x")), []string{"GET /x", "twice"}},
		"an operation on /health":    {own(op("o", "GET", "/health")), []string{"/health", "twice"}},
		"an operation on the card":   {own(op("o", "GET", "/.well-known/agent.json")), []string{"twice"}},
		"an operation on the RPC":    {own(op("o", "POST", "/a2a")), []string{"twice"}},
		"an extension twice":         {with(a2a.MCPConfig(), a2a.MCPConfig()), []string{card.MCPConfig, "twice"}},
		"no URI":                     {with(a2a.Extension{}), []string{"URI"}},
		"a reserved URI":             {with(a2a.Extension{URI: "urn:agentenv:mine/v1", Operations: []a2a.Operation{op("o", "GET", "/x")}}), []string{"urn:agentenv:mine/v1"}},
		"agent-config":               {with(a2a.Extension{URI: card.AgentConfig}), []string{"Config"}},
		"staging":                    {with(a2a.Extension{URI: card.Staging}), []string{"settings"}},
		"half of mcp-config":         {with(a2a.Extension{URI: card.MCPConfig, Operations: []a2a.Operation{a2a.Op("add", nothing)}}), []string{"add", "lacks list"}},
		"save without load":          {with(a2a.Extension{URI: card.Snapshot, Operations: []a2a.Operation{a2a.Op("save", nothing)}}), []string{"lacks load"}},
		"half of the changelog":      {with(a2a.Extension{URI: card.Snapshot, Operations: []a2a.Operation{a2a.Op("save", nothing), a2a.Op("load", nothing), a2a.Op("enable-changelog", nothing)}}), []string{"lacks apply-changelog"}},
		"an unknown operation":       {with(a2a.Extension{URI: card.MCPConfig, Operations: []a2a.Operation{a2a.Op("add", nothing), a2a.Op("list", nothing), a2a.Op("drop", nothing)}}), []string{"drop"}},
		"no form of a skill":         {with(a2a.SkillConfig(nil, nil)), []string{`"add"`, "handler"}},
		"a mount without a slash":    {with(mount("/x")), []string{`"/x"`, "slash"}},
		"a mount below another":      {with(mount("/x/", "/x/y/")), []string{"/x/y/", "below"}},
		"an operation below a mount": {with(mount("/x/"), a2a.Extension{URI: "urn:x", Operations: []a2a.Operation{op("o", "GET", "/x/y")}}), []string{"/x/y", "twice"}},
		"an operation below staging": {own(op("o", "GET", "/ext/staging/mine")), []string{"/ext/staging/", "twice"}},
		"a configuration by value":   {func(a *a2a.Agent) { a.Config = func() any { return a2a.DefaultBase() } }, []string{"pointer"}},
		"a configuration of nothing": {func(a *a2a.Agent) { a.Config = func() any { return nil } }, []string{"pointer"}},
		"a configuration of its own": {func(a *a2a.Agent) { a.Config = func() any { return &struct{}{} } }, []string{"BaseConfig"}},
		"two fields of a name": {func(a *a2a.Agent) {
			a.Config = func() any {
				return &struct {
					a2a.BaseConfig
					N string `json:"name"`
				}{}
			}
		}, []string{`"name"`}},
		"a field that is no JSON": {func(a *a2a.Agent) {
			a.Config = func() any {
				return &struct {
					a2a.BaseConfig
					F func() `json:"f"`
				}{}
			}
		}, []string{`"f"`}},
		"an unknown tag": {func(a *a2a.Agent) {
			a.Config = func() any {
				return &struct {
					a2a.BaseConfig
					F string `json:"f" agent:"secret"`
				}{}
			}
		}, []string{`"f"`, "secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := answering()
			c.change(&agent)
			server, err := a2a.New(t.Context(), agent, a2a.Settings{StagingDir: t.TempDir()})
			if err == nil {
				_ = server.Close(t.Context())
				t.Fatal("it starts")
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("it does not say %q: %v", s, err)
				}
			}
			if name != "a start that fails" && !fault.Is(err, fault.Invalid) {
				t.Errorf("%v", fault.KindOf(err))
			}
		})
	}
}

func TestRoutesBelowStagingAreFreeWhenItIsOff(t *testing.T) {
	t.Parallel()
	agent := answering()
	agent.Extensions = []a2a.Extension{{URI: "urn:x", Operations: []a2a.Operation{a2a.Op("o", nothing).At("GET", "/ext/staging/mine")}}}
	p := serve(t, agent, a2a.Settings{})
	p.ext("GET", "/ext/staging/mine", "", 200)
	p.ext("GET", "/ext/staging/0123456789012345678901/", "", 404)
}

func TestExtensionsAreClosedWhenTheAgentDoesNotStart(t *testing.T) {
	t.Parallel()
	var closed []string
	ext := func(uri string, ops ...a2a.Operation) a2a.Extension {
		return a2a.Extension{URI: uri, Operations: ops, Close: func(context.Context) error { closed = append(closed, uri); return nil }}
	}
	agent := answering()
	agent.Extensions = []a2a.Extension{ext("urn:a", a2a.Op("o", nothing).At("GET", "/a")), ext("urn:b"), ext("urn:c")}
	if _, err := a2a.New(t.Context(), agent, a2a.Settings{StagingMaxBytes: -1}); err == nil || strings.Join(closed, " ") != "urn:c urn:b urn:a" {
		t.Error(err, closed)
	}
}
