package a2a_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"agentenv/fault"
	"agentenv/protocol/a2a"
)

type teapot struct{}

func (teapot) Error() string { return "teapot" }
func (teapot) Response() (int, any) {
	return 418, map[string]any{"error": map[string]any{"code": "teapot"}}
}

// custom serves an extension with one operation at POST /op.
func custom(t *testing.T, op a2a.Operation) *peer {
	agent := answering()
	agent.Extensions = []a2a.Extension{{URI: "urn:example:x/v1", Operations: []a2a.Operation{op.At("POST", "/op")}}}
	return serve(t, agent, a2a.Settings{})
}

func TestErrorsOfHandlers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   string
		says   string // "" = only an id
	}{
		{"invalid", fault.New(fault.Invalid, "no good"), 400, "invalid", "no good"},
		{"not found", fmt.Errorf("around: %w", fault.New(fault.NotFound, "gone")), 404, "not_found", "around: gone"},
		{"exists", fault.New(fault.Exists, "there"), 409, "exists", "there"},
		{"conflict", fault.New(fault.Conflict, "busy"), 409, "conflict", "busy"},
		{"denied", fault.New(fault.Denied, "no"), 403, "denied", "no"},
		{"timeout", fault.New(fault.Timeout, "late"), 504, "timeout", "late"},
		{"unavailable", fault.New(fault.Unavailable, "down"), 503, "unavailable", "down"},
		{"internal", fault.New(fault.Internal, "s3cr3t"), 500, "internal", ""},
		{"a defect", errors.New("s3cr3t"), 500, "internal", ""},
		{"its own", teapot{}, 418, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := custom(t, a2a.Op("op", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, c.err }))
			got := p.ext("POST", "/op", "", c.status)
			if c.status == 418 {
				if got.text("error", "code") != "teapot" {
					t.Errorf("%v", got)
				}
				return
			}
			if got.text("code") != c.code || strings.Contains(fmt.Sprint(got), "s3cr3t") {
				t.Errorf("%v", got)
			}
			if c.says != "" && got.text("detail") != c.says {
				t.Errorf("%v", got)
			}
			if id := regexp.MustCompile(`[0-9a-f]{32}$`).FindString(got.text("detail")); c.status == 500 && (id == "" || !strings.Contains(p.log.String(), id) || !strings.Contains(p.log.String(), "s3cr3t")) {
				t.Errorf("%v\n%s", got, p.log)
			}
		})
	}
}

func TestAPanicOfAHandlerShowsNothing(t *testing.T) {
	t.Parallel()
	p := custom(t, a2a.Op("op", func(context.Context, struct{}) (struct{}, error) { panic("s3cr3t") }))
	if got := p.ext("POST", "/op", "", 500); strings.Contains(fmt.Sprint(got), "s3cr3t") || !strings.Contains(p.log.String(), "s3cr3t") {
		t.Errorf("%v", got)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	type full struct {
		List []string          `json:"list"`
		Map  map[string]string `json:"map"`
		None *string           `json:"none"`
	}
	for name, c := range map[string]struct {
		op     a2a.Operation
		status int
		want   string
	}{
		"nothing":             {a2a.Op("op", nothing), 200, `{}`},
		"a nil map":           {a2a.Op("op", func(context.Context, struct{}) (map[string]any, error) { return nil, nil }), 200, `{}`},
		"a map":               {a2a.Op("op", func(context.Context, struct{}) (map[string]any, error) { return map[string]any{"a": 1}, nil }), 200, `{"a":1}`},
		"what is not set":     {a2a.Op("op", func(context.Context, struct{}) (full, error) { return full{}, nil }), 200, `{"list":[],"map":{}}`},
		"a list":              {a2a.Op("op", func(context.Context, struct{}) ([]int, error) { return []int{1}, nil }), 500, ""},
		"what JSON cannot be": {a2a.Op("op", func(context.Context, struct{}) (map[string]any, error) { return map[string]any{"f": func() {}}, nil }), 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := custom(t, c.op)
			status, text, _ := p.do("POST", "/op", "")
			if status != c.status || c.want != "" && text != c.want {
				t.Errorf("%d %s", status, text)
			}
		})
	}
}

type variantA struct {
	ID string `json:"id"`
	A  string `json:"a"`
}

type variantB struct {
	ID string `json:"id"`
	B  int    `json:"b"`
}

type variantOff struct {
	ID  string `json:"id"`
	Off string `json:"off"`
}

func TestVariants(t *testing.T) {
	t.Parallel()
	a := a2a.Case("letters", func(_ context.Context, in variantA) (map[string]any, error) {
		return map[string]any{"got": "a" + in.A}, nil
	})
	b := a2a.Case("numbers", func(_ context.Context, in variantB) (map[string]any, error) { return map[string]any{"got": in.B}, nil })
	off := a2a.Case("off", func(context.Context, variantOff) (map[string]any, error) { return nil, nil }).When(false)
	p := custom(t, a2a.Cases("op", a, b, off))
	for _, c := range []struct {
		body   string
		status int
		says   []string
	}{
		{`{"id":"i","a":"x"}`, 200, []string{`{"got":"ax"}`}},
		{`{"id":"i","b":"3"}`, 200, []string{`{"got":3}`}},
		{`{"a":"x"}`, 400, []string{"missing required fields: id"}},
		{`{"id":"i","off":"x"}`, 400, []string{"unsupported request variant fields: off"}},
		{`{"id":"i"}`, 400, []string{"letters, numbers", `the closest is \"letters\"`}},
		{`{"id":"i","b":"s3cr3t"}`, 400, []string{"letters, numbers", `the closest is \"numbers\"`, "integer"}},
		{`{"id":"i","a":"x","b":3}`, 400, []string{"letters, numbers"}},
	} {
		status, text, _ := p.do("POST", "/op", c.body)
		for _, s := range c.says {
			if status != c.status || !strings.Contains(text, s) || strings.Contains(text, "s3cr3t") {
				t.Errorf("%s: %d, no %q: %s", c.body, status, s, text)
			}
		}
	}
	same := custom(t, a2a.Cases("op", a, a2a.Case("twin", func(context.Context, variantA) (map[string]any, error) { return nil, nil })))
	if got := same.ext("POST", "/op", `{"id":"i","a":"x"}`, 400); !strings.Contains(got.text("detail"), `both "letters" and "twin"`) {
		t.Errorf("%v", got)
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	type in struct {
		N    int     `json:"n"`
		Text *string `json:"text"`
	}
	echo := func(_ context.Context, in in) (map[string]any, error) {
		return map[string]any{"n": in.N, "set": in.Text != nil}, nil
	}
	agent := answering()
	agent.Extensions = []a2a.Extension{{URI: "urn:example:x/v1", Operations: []a2a.Operation{
		a2a.Op("read", echo).At("GET", "/op"), a2a.Op("write", echo).At("POST", "/op"), a2a.Op("bare", nothing).At("PUT", "/op")}}}
	p := serve(t, agent, a2a.Settings{MaxBody: 1000})
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/op?n=5", "", 200, `{"n":5,"set":false}`},
		{"GET", "/op?n=5&text=", "", 200, `{"n":5,"set":true}`},
		{"GET", "/op?n=5&n=6", "", 200, `{"n":6,`},
		{"GET", "/op", "", 400, `missing`},
		{"GET", "/op?n=5&x=1", "", 400, `extra_forbidden`},
		{"GET", "/op?n=%zz", "", 400, `query`},
		{"POST", "/op", `{"n":1,"text":null}`, 200, `{"n":1,"set":false}`},
		{"POST", "/op", ``, 400, `missing`},
		{"POST", "/op", `[]`, 400, `object`},
		{"POST", "/op", `nope`, 400, `JSON`},
		{"POST", "/op", `{"n":1} {}`, 400, `JSON`},
		{"POST", "/op", `{"n":1,"text":"` + strings.Repeat("x", 1000) + `"}`, 400, `larger`},
		{"PUT", "/op", `{}`, 200, `{}`},
		{"PUT", "/op", `{"x":1}`, 400, `\"bare\" takes no fields`},
		{"DELETE", "/op", ``, 405, `DELETE`},
	} {
		status, text, _ := p.do(c.method, c.path, c.body)
		if status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, status, text)
		}
	}
}

func TestMCPConfig(t *testing.T) {
	t.Parallel()
	var servers atomic.Value
	agent := answering()
	agent.Run = func(_ context.Context, r *a2a.Request) (a2a.Result, error) {
		servers.Store(r.MCPServers)
		return a2a.Result{Parts: []a2a.Part{a2a.Text("x")}}, nil
	}
	brought := a2a.Extension{URI: "urn:example:x/v1", Reserved: []string{"brought"}, Operations: []a2a.Operation{a2a.Op("o", nothing).At("GET", "/x")},
		MCPServers: func(port int) map[string]a2a.MCPServer {
			return map[string]a2a.MCPServer{"brought": {URL: fmt.Sprintf("http://127.0.0.1:%d/mcp", port)}}
		}}
	agent.Extensions = []a2a.Extension{a2a.MCPConfig(), brought}
	p := serve(t, agent, a2a.Settings{})
	for _, c := range []struct {
		body   string
		status int
		says   string
	}{
		{`{"url":" http://e/mcp ","name":"crm","headers":{"A":"s3cr3t"}}`, 200, `{"name":"crm","status":"added","url":"http://e/mcp"}`},
		{`{"url":"http://e/mcp","name":"other"}`, 409, "crm"},
		{`{"url":"http://f/mcp","name":"crm"}`, 409, "crm"},
		{`{"url":"http://f/mcp","name":"brought"}`, 409, "brought"},
		{`{"url":"  "}`, 400, "URL"},
		{`{"url":"http://f/mcp","name":" "}`, 400, "name"},
		{`{"url":"http://f/mcp","headers":{"A":5}}`, 400, "string"},
		{`{"url":"http://g/mcp","name":null,"headers":null}`, 200, `"name":"mcp_`},
	} {
		status, text, _ := p.do("POST", "/ext/mcp-config", c.body)
		if status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s", c.body, status, text)
		}
	}
	list := p.ext("GET", "/ext/mcp-config", "", 200)
	all := list.at("mcp_servers").(map[string]any)
	if len(all) != 3 || list.text("mcp_servers", "crm") != "map[has_headers:true url:http://e/mcp]" || strings.Contains(fmt.Sprint(list), "s3cr3t") {
		t.Errorf("%v", list)
	}
	p.send(sending{text: "x"})
	got := servers.Load().(map[string]a2a.MCPServer)
	if len(got) != 3 || got["crm"].Headers["A"] != "s3cr3t" || got["brought"].URL != strings.Replace(p.url, "localhost", "127.0.0.1", 1)+"/mcp" {
		t.Errorf("%v", got)
	}
}

func TestSkillConfig(t *testing.T) {
	t.Parallel()
	var installs atomic.Int64
	agent := answering()
	agent.Identity.Skills = []a2a.CardSkill{{ID: "own", Name: "own", Description: "From the card"}}
	agent.Extensions = []a2a.Extension{a2a.SkillConfig(func(_ context.Context, s a2a.Skill) error {
		installs.Add(1)
		if s.SkillMD == "bad" {
			return fault.New(fault.Invalid, "the skill is bad")
		}
		return nil
	}, nil)}
	p := serve(t, agent, a2a.Settings{})
	add := func(name, md string) (int, string) {
		status, text, _ := p.do("POST", "/ext/skill-config", `{"name":"`+name+`","description":"D","skill_md":"`+md+`"}`)
		return status, text
	}
	for _, name := range []string{"", ".x", "../x", "a/b", "a b", strings.Repeat("x", 129)} {
		if status, text := add(name, "x"); status != 400 {
			t.Errorf("%q: %d %s", name, status, text)
		}
	}
	if status, text := add("x", "bad"); status != 400 || !strings.Contains(text, "bad") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := add("own", "x"); status != 409 || !strings.Contains(text, "own") {
		t.Errorf("%d %s", status, text)
	}
	installs.Store(0)
	statuses := make(chan int, 8)
	for range 8 {
		go func() {
			r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, p.url+"/ext/skill-config", strings.NewReader(`{"name":"one","description":"D","skill_md":"x"}`))
			res, err := p.client.Do(r)
			if err != nil {
				statuses <- 0
				return
			}
			res.Body.Close()
			statuses <- res.StatusCode
		}()
	}
	count := map[int]int{}
	for range 8 {
		count[<-statuses]++
	}
	if count[200] != 1 || count[409] != 7 || installs.Load() != 1 {
		t.Errorf("%v, %d installs", count, installs.Load())
	}
	if got := p.ext("GET", "/ext/skill-config", "", 200).text("skills"); got != "map[one:map[description:D] own:map[description:From the card]]" {
		t.Error(got)
	}
	_, text, _ := p.do("GET", cardPath, "")
	if got := parse(t, text).text("skills", 1); got != "map[description:D id:skill-one name:one tags:[skill]]" {
		t.Error(text)
	}
	if got := p.ext("POST", "/ext/skill-config", `{"name":"b","description":"d","skill_bundle":{}}`, 400); !strings.Contains(got.text("detail"), "unsupported request variant fields: skill_bundle") {
		t.Errorf("%v", got)
	}
}

func TestAttributionProbe(t *testing.T) {
	t.Parallel()
	agent := answering()
	agent.Extensions = []a2a.Extension{a2a.AttributionProbe(func(context.Context) (a2a.Attribution, error) {
		return a2a.Attribution{LastSeen: map[string]string{"a": "b"}}, nil
	})}
	p := serve(t, agent, a2a.Settings{})
	if got := p.ext("POST", "/ext/attribution-probe", "", 200); got.text() != "map[last_seen_attribution:map[a:b]]" {
		t.Errorf("%v", got)
	}
	p.ext("POST", "/ext/attribution-probe", `{"x":1}`, 400)
}

func FuzzExtensions(f *testing.F) {
	f.Add("/ext/trajectory", []byte(`{"task_id":"t","after":0,"limit":1}`))
	f.Add("/ext/trajectory", []byte(`{"task_id":"t","objects":{"trajectory":{"media_type":"application/json","max_bytes":1,"write":{"kind":"http-put","url":"https://h","expires_at":"2030-01-01T00:00:00Z"}}}}`))
	f.Add("/ext/agent-config", []byte(`{"maxCount":"5","nested":{"cap":1e0},"timeout_seconds":1}`))
	f.Add("/ext/mcp-config", []byte(`{"url":" x ","headers":{"a":"b"}}`))
	f.Add("/ext/skill-config", []byte(`{"name":"x","description":"","skill_bundle":{"max_total_bytes":1,"files":[{"path":"SKILL.md","object":{}}]}}`))
	f.Add("/ext/triggers", []byte(`{"triggers":[{"when":{"type":"step"},"actions":[{"type":"end"}]}]}`))
	f.Add("/ext/triggers/decide", []byte(`{"turn":1,"env_triggers":{"a":{"b":"c"}}}`))
	f.Add("/ext/snapshot/changelog", []byte(`{"write_namespace":{},"roots":null}`))
	agent := answering()
	agent.Config = func() any { return &testConfig{Count: 1} }
	agent.Extensions = []a2a.Extension{a2a.MCPConfig(), a2a.Trajectory(true), a2a.Triggers(), a2a.Snapshot(&saver{}),
		a2a.SkillConfig(func(context.Context, a2a.Skill) error { return nil }, func(context.Context, a2a.SkillBundle) error { return nil })}
	server, err := a2a.New(context.Background(), agent, a2a.Settings{StagingMaxBytes: -1})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = server.Close(context.Background()) })
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body)))
		r.URL.Path = path
		server.Handler().ServeHTTP(w, r)
		o := parse(t, w.Body.String())
		if w.Code == http.StatusInternalServerError || w.Code != http.StatusOK && o.text("detail") == "<nil>" {
			t.Fatalf("%s %s: %d %s", path, body, w.Code, w.Body)
		}
	})
}
