package a2a_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"agentenv/protocol/a2a"
	"agentenv/protocol/card"
)

type nested struct {
	Cap  *int   `json:"cap"`
	Name string `json:"n" agent:"optional"`
}

type testConfig struct {
	a2a.BaseConfig
	Model  string         `json:"model"`
	Count  int            `json:"maxCount" agent:"min=1,max=10"`
	Exact  int            `json:"exact" agent:"strict"`
	Ratio  float64        `json:"ratio"`
	On     bool           `json:"on"`
	Key    map[string]any `json:"key" agent:"writeonly"`
	Nested *nested        `json:"nested"`
}

func configured(t *testing.T) *peer {
	agent := answering()
	agent.Config = func() any { return &testConfig{BaseConfig: a2a.DefaultBase(), Model: "default", Count: 5} }
	agent.Run = func(_ context.Context, r *a2a.Request) (a2a.Result, error) {
		c := r.Config.(*testConfig)
		return a2a.Result{Parts: []a2a.Part{a2a.Text(fmt.Sprintf("%s %d %d %v %v %v %v", c.Model, c.Count, c.Exact, c.Ratio, c.On, c.Key, c.TimeoutSeconds))}}, nil
	}
	return serve(t, agent, a2a.Settings{})
}

func TestConfigSets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set  string
		want string // of the next task; "" = refused
		says string
	}{
		{`{}`, "default 5 0 0 false map[] 600", ""},
		{`{"model":"m","timeout_seconds":"60"}`, "m 5 0 0 false map[] 60", ""},
		{`{"maxCount":7.0,"ratio":"1.5","on":"yes","key":{"k":1}}`, "default 7 0 1.5 true map[k:1] 600", ""},
		{`{"maxCount":1e1,"exact":3,"on":1}`, "default 10 3 0 true map[] 600", ""},
		{`{"maxCount":11}`, "", "at most 10"},
		{`{"maxCount":0}`, "", "at least 1"},
		{`{"maxCount":1.5}`, "", "integer"},
		{`{"maxCount":true}`, "", "integer"},
		{`{"maxCount":"1e1"}`, "", "integer"},
		{`{"maxCount":null}`, "", "integer"},
		{`{"exact":"3"}`, "", "integer"},
		{`{"exact":3.0}`, "", "integer"},
		{`{"ratio":true}`, "", "number"},
		{`{"ratio":"NaN"}`, "", "number"},
		{`{"on":2}`, "", "true or false"},
		{`{"model":5}`, "", "string"},
		{`{"nope":1}`, "", "nope"},
		{`{"model":"m","nope":1}`, "", "nope"},
		{`{"key":"s3cr3t"}`, "", "key"},
		{`{"nested":{"cap":"s3cr3t"}}`, "", `[\"nested\",\"cap\"]`},
		{`{"name":" "}`, "", "name"},
		{`{"description":null}`, "", "description"},
		{`[]`, "", "object"},
		{`{`, "", "JSON"},
	} {
		t.Run(c.set, func(t *testing.T) {
			t.Parallel()
			p := configured(t)
			if c.want != "" {
				if got := p.ext("POST", "/ext/agent-config", c.set, 200); got.text("status") != "updated" {
					t.Errorf("%v", got)
				}
			} else {
				_, text, _ := p.do("POST", "/ext/agent-config", c.set)
				got := p.ext("POST", "/ext/agent-config", c.set, 400)
				if !strings.Contains(text, c.says) && !strings.Contains(got.text("detail"), c.says) || strings.Contains(text+p.log.String(), "s3cr3t") || got.text("code") != "invalid" {
					t.Error(text)
				}
				if got := p.ext("GET", "/ext/agent-config", "", 200).text("config"); got != "map[]" {
					t.Errorf("something was stored: %s", got)
				}
				c.want = "default 5 0 0 false map[] 600"
			}
			if got := p.send(sending{text: "x"}).text("status", "message", "parts", 0, "text"); got != c.want {
				t.Errorf("%s", got)
			}
		})
	}
}

func TestConfigReadsBack(t *testing.T) {
	t.Parallel()
	p := configured(t)
	p.ext("POST", "/ext/agent-config", `{"maxCount":"7","key":{"k":"s3cr3t"},"nested":{"cap":3.0}}`, 200)
	p.ext("POST", "/ext/agent-config", `{"nested":{"n":"x"},"role":null}`, 200)
	_, text, _ := p.do("GET", "/ext/agent-config", "")
	if text != `{"config":{"key":"***","maxCount":7,"nested":{"cap":null,"n":"x"},"role":null}}` {
		t.Error(text)
	}
	if got := p.ext("GET", "/ext/agent-config?x=1", "", 400); !strings.Contains(got.text("detail"), `"get" takes no fields`) {
		t.Errorf("%v", got)
	}
}

func TestConfigNamesTheAgent(t *testing.T) {
	t.Parallel()
	p := configured(t)
	p.ext("POST", "/ext/agent-config", `{"name":"Judge","description":"Judges"}`, 200)
	of, err := p.server.Card()
	if err != nil || of.Name != "Judge" || of.Description != "Judges" {
		t.Errorf("%v %v", of, err)
	}
}

func TestConfigThatIsNotReadBack(t *testing.T) {
	t.Parallel()
	agent := answering()
	agent.Config, agent.NoReadback = func() any { return &testConfig{Count: 1} }, true
	p := serve(t, agent, a2a.Settings{})
	p.ext("POST", "/ext/agent-config", `{"model":"m"}`, 200)
	p.ext("GET", "/ext/agent-config", "", 405)
	of, err := p.server.Card()
	if err != nil || of.Extension(card.AgentConfig).Operation("get").Listed || !of.Extension(card.AgentConfig).Operation("set").Listed {
		t.Errorf("%v %v", of, err)
	}
}
