package agents_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// overridden is the context of a run with these overrides.
func overridden(overrides *doc.Object) *doc.Object {
	return task.NewContext().Set("metadata", doc.Of("user_overrides", overrides))
}

// TestDeployOverrides has the overrides of a run stand over what the step says, and that over the configuration.
func TestDeployOverrides(t *testing.T) {
	t.Parallel()
	env := map[string]string{"LITELLM_API_KEY": "configured-key", "LITELLM_BASE_URL": "http://configured.test/v1", "A_KEY": "key-of-env", "A_URL": "http://env.test", "secret:team": "key-of-store"}
	const step = `,"ttl_seconds":60,"disk_size_gb":20,"litellm_base_url":"http://step.test"`
	for name, c := range map[string]struct {
		step      string
		overrides *doc.Object
		metadata  *doc.Object // of the agent
		want      string      // key, URL, disk in GB, time to live
		fails     string
	}{
		"nothing":                        {"", nil, nil, "configured-key http://configured.test/v1 10 2h0m0s", ""},
		"the step":                       {step, nil, nil, "configured-key http://step.test 20 1m0s", ""},
		"a key":                          {step, doc.Of("litellm_api_key", "key-of-run"), nil, "key-of-run http://step.test 20 1m0s", ""},
		"a key over one of env_vars":     {`,"env_vars":{"LITELLM_API_KEY":"key-of-step"}`, doc.Of("litellm_api_key", "key-of-run"), nil, "key-of-run http://configured.test/v1 10 2h0m0s", ""},
		"a key of the environment":       {"", doc.Of("litellm_api_key", "env:A_KEY"), nil, "key-of-env http://configured.test/v1 10 2h0m0s", ""},
		"a key of the secrets":           {"", doc.Of("litellm_api_key", "secret:team"), nil, "key-of-store http://configured.test/v1 10 2h0m0s", ""},
		"a key that is in neither":       {"", doc.Of("litellm_api_key", "secret:gone?key-by-default"), nil, "key-by-default http://configured.test/v1 10 2h0m0s", ""},
		"no such variable":               {"", doc.Of("litellm_api_key", "env:GONE"), nil, "", "litellm_api_key: env:GONE"},
		"no such secret":                 {"", doc.Of("litellm_api_key", "secret:gone"), nil, "", "litellm_api_key: secret:gone"},
		"an endpoint":                    {step, doc.Of("litellm_base_url", "http://run.test"), nil, "configured-key http://run.test 20 1m0s", ""},
		"an endpoint of the environment": {"", doc.Of("litellm_base_url", "env:A_URL"), nil, "configured-key http://env.test 10 2h0m0s", ""},
		"an endpoint on this machine":    {"", doc.Of("litellm_base_url", "http://127.0.0.1:4000/v1"), nil, "configured-key http://host.docker.internal:4000/v1 10 2h0m0s", ""},
		"no such endpoint":               {"", doc.Of("litellm_base_url", "env:GONE"), nil, "", "litellm_base_url: env:GONE"},
		"a disk":                         {step, doc.Of("agent_disk_size_gb", doc.Float(12.5)), nil, "configured-key http://step.test 12.5 1m0s", ""},
		"a disk that is too small":       {step, doc.Of("agent_disk_size_gb", doc.Int(12)), doc.Of("min_disk_size_gb", doc.Int(30)), "configured-key http://step.test 30 1m0s", ""},
		"a time to live":                 {step, doc.Of("ttl_seconds", doc.Int(90)), nil, "configured-key http://step.test 20 1m30s", ""},
		"nothing that counts":            {step, doc.Of("ttl_seconds", nil, "agent_disk_size_gb", nil, "litellm_api_key", nil, "litellm_base_url", ""), nil, "configured-key http://step.test 20 1m0s", ""},
		"an agent that takes no keys":    {step, doc.Of("litellm_api_key", "key-of-run", "litellm_base_url", "http://run.test"), doc.Of("takes_credentials", false), "  20 1m0s", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, env)
			r.provider.Serve = handler(&fake{answer: echoing}, t)
			if c.metadata == nil {
				c.metadata = doc.Of()
			}
			r.put("bot", c.metadata)
			run, err := r.run(t.Context(), overridden(c.overrides), `{"id":"d","type":"deploy_agent","a2a_agent_id":"bot"`+c.step+`}`)
			if c.fails != "" {
				if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.fails) || len(r.provider.Specs()) != 0 {
					t.Errorf("%v, after %d sandboxes", err, len(r.provider.Specs()))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			spec := r.provider.Specs()[0]
			if got := fmt.Sprint(spec.Env["LITELLM_API_KEY"], " ", spec.Env["LITELLM_BASE_URL"], " ", spec.DiskGB, " ", spec.TTL.Round(time.Second)); got != c.want {
				t.Errorf("it got %s", got)
			}
			for _, secret := range []string{env["LITELLM_API_KEY"], env["A_KEY"], env["secret:team"]} {
				if strings.Contains(canon(run.Context()), secret) || strings.Contains(strings.Join(r.notes, " "), secret) {
					t.Errorf("%s is in the record of the run, or told", secret)
				}
			}
		})
	}
}

// TestRoleOfTheEnvironment has an agent find its role in its environment, unless the step sets that itself.
func TestRoleOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step, variable string // "none" = it is not there
		told           string
	}{
		"the role":            {`"role":"buyer"`, "buyer", `[{"name":"default-agent","role":"buyer"}]`},
		"given by the step":   {`"role":"buyer","env_vars":{"AGENT_ENV_ROLE":"seller"}`, "seller", `[{"name":"default-agent","role":"buyer"}]`},
		"given and empty":     {`"role":"buyer","env_vars":{"AGENT_ENV_ROLE":""}`, "", `[{"name":"default-agent","role":"buyer"}]`},
		"given without a one": {`"env_vars":{"AGENT_ENV_ROLE":"seller"}`, "seller", `[{"name":"default-agent"}]`},
		"an empty one":        {`"role":""`, "none", `[{"name":"default-agent"}]`},
		"none":                {`"agent_name":"a"`, "none", `[{"name":"a"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{takes: "name,role", answer: echoing}
			r := newRig(t, nil)
			r.provider.Serve = handler(f, t)
			r.put("bot", nil)
			if _, err := r.run(t.Context(), nil, `{"id":"d","type":"deploy_agent","a2a_agent_id":"bot",`+c.step+`}`); err != nil {
				t.Fatal(err)
			}
			got, there := r.provider.Specs()[0].Env["AGENT_ENV_ROLE"]
			if !there {
				got = "none"
			}
			if told := canon(f.got("/ext/agent-config")); got != c.variable || told != c.told {
				t.Errorf("the variable is %q, it was told %s", got, told)
			}
		})
	}
}

// TestPromptOverrides has an agent be told one value of each setting: the one of the place that counts most.
func TestPromptOverrides(t *testing.T) {
	t.Parallel()
	context := func(o *doc.Object, pairs ...any) *doc.Object {
		out := doc.Of("user_overrides", o)
		for i := 0; i < len(pairs); i += 2 {
			out.Set(pairs[i].(string), pairs[i+1])
		}
		return out
	}
	params := func(pairs ...any) *doc.Object { return doc.Of("step_params", doc.Of("ask", doc.Of(pairs...))) }
	number := func(n int64) doc.Number { return doc.Int(n) }
	for name, c := range map[string]struct {
		step string
		run  *doc.Object // fields of the context, and user_overrides
		want string
	}{
		"nothing":                                {"", context(nil), `{}`},
		"model of the context":                   {"", context(nil, "default_agent_model", "m-default"), `{"model":"m-default"}`},
		"model of the step":                      {`,"model":"m-step"`, context(nil, "default_agent_model", "m-default"), `{"model":"m-step"}`},
		"model of the run":                       {`,"model":"m-step"`, context(nil, "agent_model", "m-run", "default_agent_model", "m-default"), `{"model":"m-run"}`},
		"model of the step's override":           {`,"model":"m-step"`, context(params("model", "m-param"), "agent_model", "m-run", "default_agent_model", "m-default"), `{"model":"m-param"}`},
		"model of an override that is none":      {`,"model":"m-step"`, context(params("model", nil)), `{"model":"m-step"}`},
		"model of another step's override":       {`,"model":"m-step"`, context(doc.Of("step_params", doc.Of("other", doc.Of("model", "m-param")))), `{"model":"m-step"}`},
		"effort of the step":                     {`,"effort":"low"`, context(nil), `{"effort":"low"}`},
		"effort of the run":                      {`,"effort":"low"`, context(doc.Of("agent_effort", "mid")), `{"effort":"mid"}`},
		"effort of the step's override":          {`,"effort":"low"`, context(params("effort", "high").Set("agent_effort", "mid")), `{"effort":"high"}`},
		"turns of the step":                      {`,"max_turns":3`, context(nil), `{"max_turns":3}`},
		"turns of the run":                       {`,"max_turns":3`, context(doc.Of("agent_max_turns", number(5))), `{"max_turns":5}`},
		"turns of the run alone":                 {"", context(doc.Of("agent_max_turns", number(5))), `{"max_turns":5}`},
		"turns in the step's overrides":          {`,"max_turns":3`, context(params("max_turns", number(7))), `{"max_turns":3}`},
		"thinking of the step":                   {`,"max_thinking_tokens":100`, context(nil), `{"max_thinking_tokens":100}`},
		"thinking of the run":                    {`,"max_thinking_tokens":100`, context(doc.Of("agent_max_thinking_tokens", number(200))), `{"max_thinking_tokens":200}`},
		"thinking in the step's overrides":       {`,"max_thinking_tokens":100`, context(params("max_thinking_tokens", number(300))), `{"max_thinking_tokens":100}`},
		"harness of the step":                    {`,"harness":"h-step"`, context(nil), `{"harness":"h-step"}`},
		"harness of the context":                 {`,"harness":"h-step"`, context(nil, "agent_harness", "h-run"), `{"harness":"h-run"}`},
		"harness of the context alone":           {"", context(nil, "agent_harness", "h-run"), `{"harness":"h-run"}`},
		"harness in the overrides, of no effect": {`,"harness":"h-step"`, context(params("harness", "h-param").Set("harness", "h-x")), `{"harness":"h-step"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{takes: "model,effort,max_turns,max_thinking_tokens,harness", answer: echoing}
			r := newRig(t, nil)
			at := deployed(t, doc.Of("user_overrides", c.run.Value("user_overrides")), map[string]string{"default-agent": f.start(t)})
			for _, k := range c.run.Keys() {
				if k != "user_overrides" {
					at.Set(k, c.run.Value(k))
				}
			}
			run, err := r.run(t.Context(), at, `{"id":"ask","type":"prompt_agent","prompt":"hello"`+c.step+`}`)
			if err != nil {
				t.Fatal(err)
			}
			told := doc.Of()
			for _, one := range f.got("/ext/agent-config") {
				told = one
			}
			if got := canon(told); got != c.want {
				t.Errorf("it was told %s", got)
			}
			model := told.Value("model")
			if got := run.PromptResponses()[0].Value("model"); got != model || run.Metadata("models", "solver", "ask") != model {
				t.Errorf("recorded are the models %v and %v", got, run.Metadata("models"))
			}
		})
	}
}
