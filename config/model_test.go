package config_test

import (
	"testing"

	"agentenv/config"
	"agentenv/fault"
	"agentenv/store/doc"
)

func modelOf(t *testing.T, w *world) *config.ModelSection {
	t.Helper()
	c := w.load()
	c.SetSecrets(func(name string) (string, bool, error) { return "<" + name + ">", name != "none", nil })
	m, err := c.Model()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestModelCall(t *testing.T) {
	const file = `[model]
base_url = "https://a/v1/"
api_key = "secret:k"
default = "d"
roles = {judge = "j", empty = ""}
headers = {X-A = "1", X-B = "secret:b"}
params = {temperature = 0.5, extra_headers = {x-b = "2"}}
`
	ours := doc.Of("temperature", doc.Number("0.5"), "extra_headers", doc.Of("X-A", "1", "x-b", "2"))
	foreign := doc.Of("temperature", doc.Number("0.5"), "extra_headers", doc.Of("x-b", "2"))
	tests := []struct {
		name             string
		env              map[string]string
		model, key, base string
		overrides        map[string]config.ModelOverride
		wantKey, wantURL string
		params           *doc.Object
		leftOut          string
	}{
		{name: "configured", model: "m", wantKey: "<k>", wantURL: "https://a/v1/", params: ours},
		{name: "the same endpoint, named", model: "m", base: "https://a/v1", wantKey: "<k>", wantURL: "https://a/v1", params: ours},
		{name: "a foreign endpoint", model: "m", base: "https://u:p@b/v1", wantURL: "https://u:p@b/v1", params: foreign, leftOut: "b"},
		{name: "a key of the caller", model: "m", key: "mine", base: "https://b", wantKey: "mine", wantURL: "https://b", params: foreign, leftOut: "b"},
		{name: "variables", env: map[string]string{"LITELLM_API_KEY": "ek", "LITELLM_BASE_URL": "https://e"}, model: "m", wantKey: "ek", wantURL: "https://e", params: ours},
		{name: "empty variables", env: map[string]string{"LITELLM_API_KEY": "", "LITELLM_BASE_URL": ""}, model: "m", wantKey: "<k>", wantURL: "https://a/v1/", params: ours},
		{name: "an endpoint of the model's own", model: "m", overrides: map[string]config.ModelOverride{"m": {SecretKey: "s", BaseURL: "https://o"}},
			wantKey: "<s>", wantURL: "https://o", params: &doc.Object{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.file(file)
			for k, v := range test.env {
				w.env[k] = v
			}
			leftOut := ""
			got, err := modelOf(t, w).Call(test.model, test.key, test.base, test.overrides, func(host string) { leftOut = host })
			if err != nil {
				t.Fatal(err)
			}
			if got.APIKey != test.wantKey || got.BaseURL != test.wantURL || leftOut != test.leftOut {
				t.Errorf("key %q at %q, headers kept from %q; want %q, %q, %q", got.APIKey, got.BaseURL, leftOut, test.wantKey, test.wantURL, test.leftOut)
			}
			equal(t, got.Params, test.params)
		})
	}
}

func TestModelAnswers(t *testing.T) {
	w := newWorld(t)
	w.file("[model]\ndefault = \"d\"\nroles = {judge = \"j\", empty = \"\"}\n")
	m := modelOf(t, w)
	for role, want := range map[string]string{"judge": "j", "empty": "d", "absent": "d"} {
		if got := m.ForRole(role); got != want {
			t.Errorf("%s: %q, want %q", role, got, want)
		}
	}
	_, err := m.APIKey()
	fails(t, err, fault.Invalid, "LITELLM_API_KEY", "api_key")
	_, err = m.BaseURL()
	fails(t, err, fault.Invalid, "LITELLM_BASE_URL", "base_url")
	_, err = m.Call("plain", "", "", nil, nil)
	fails(t, err, fault.Invalid, "LITELLM_BASE_URL")
	if got, err := m.Call("vendor/model", "", "", nil, nil); err != nil || got.BaseURL != "" {
		t.Errorf("a routed model: %+v, %v", got, err)
	}
	_, err = m.Call("m", "", "", map[string]config.ModelOverride{"m": {SecretKey: "none"}}, nil)
	fails(t, err, fault.Invalid, "model m", "secret:none")
}

func TestHeadersAreCheckedAgainOnceResolved(t *testing.T) {
	w := newWorld(t)
	w.file("[model]\nbase_url = \"https://a\"\nheaders = {X = \"env:BAD\"}\n")
	w.env["BAD"] = "hush\nhush"
	_, err := modelOf(t, w).Call("m", "k", "", nil, nil)
	fails(t, err, fault.Invalid, "the value of X")
	if got := err.Error(); len(got) == 0 || contains(got, "hush") {
		t.Errorf("the value is in the error: %q", got)
	}
}
