//go:build integration

package config_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv/config"
	"agentenv/store/doc"
)

// reference runs `config …` of the reference in the world and returns the JSON it prints.
func (w *world) reference(args ...string) *doc.Object {
	w.t.Helper()
	program := os.Getenv("AGENT_ENV_REFERENCE")
	if program == "" {
		w.t.Fatal("AGENT_ENV_REFERENCE is not set; it must name the reference's agent-env program")
	}
	cmd := exec.Command(program, append(append([]string{"config"}, args...), "--json")...)
	cmd.Dir = w.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.t.TempDir()}
	for _, k := range slices.Sorted(maps.Keys(w.env)) {
		cmd.Env = append(cmd.Env, k+"="+w.env[k])
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("the reference's config %s: %v\n%s", args, err, stderr.String())
	}
	o, err := doc.ParseObject(out, doc.Options{})
	if err != nil {
		w.t.Fatalf("the reference's config %s: %v", args, err)
	}
	return o
}

// comparable replaces what the two programs word differently, so that the rest must be equal:
//   - warnings and errors: each program has its own words; that there is one, and how many, must agree;
//   - defaults: "default in <module>" names a module of the program that speaks;
//   - remarks on sources: worded differently; that there is one must agree.
func comparable(v any, key string) any {
	switch v := v.(type) {
	case *doc.Object:
		out := &doc.Object{}
		for _, k := range v.Keys() {
			out.Set(k, comparable(v.Value(k), k))
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = comparable(x, key)
		}
		return out
	case string:
		switch {
		case key == "warnings" || key == "error" || key == "detail":
			return "(text)"
		case (key == "where" || key == "winner") && (strings.HasPrefix(v, "default in ") || strings.HasPrefix(v, "built-in default")):
			return "default"
		case key == "where" && (v == "(no config file)" || v == "(discovery failed)"):
			return "(no file)"
		case key == "value" && strings.HasPrefix(v, "(unreadable: "):
			return "(unreadable)"
		}
	}
	return v
}

const fullFile = `
stray = 5
name = 3
runnner = "local"
storess = {}
[stores.document]
impl = "agent_env.store:MongoDocumentStore"
extra = 1
uri = "z"
[stores.document.config]
uri = "mongodb://bob:pw@h/db"
database = "env:DB?x"
[stores.object]
impl = "agent_env.store:LocalFilesystemObjectStore"
config = {root = "/tmp/x"}
[stores.secret]
impl="x:Y"
secret_name="q"
[sanbox]
x=1
[sandbox]
default = "local"
foo = 2
[sandbox.attribution]
team = "env:TEAM?core"
model = "x"
[sandbox.providers]
modal = {config = {app_name = "z"}}
local = {config = {a = [1, [2, {token = "t"}]]}}
[task-steps]
impls=[]
[model]
base_url = "https://m"
api_key = "secret:K?lit"
default = "gpt"
roles = {judge = "j", agent = "q"}
headers = {X-A = "a b", X-B = "env:B"}
[model.params]
temperature = 0.5
when = 2024-01-02T03:04:05Z
d = 2024-01-02
t = 03:04:05.5
ld = 2024-01-02T03:04:05
big = [1, 2, {a = "x\ny\\z"}]
huge = 1e30
runner = {config = 1}
[conversations]
default_human_a2a_url = "https://u:p@h/x"
[agents]
default_a2a_agent_id = "x"
[plugins.My_Plug]
token = "abc"
tokens = ["a","b"]
credentials = {user="u", n = 5}
x = "env:A?https://u:p@h"
api_key = "secret:K?lit"
author = "me"
n = 1.50
model = 1
[plugins."x.oauth"]
a = 1
[explorer]
port = 99
prot = 1
plugins = {impls = ["a:b"], implz = 1}
[envs]
impls = ["x:y"]
sandbox = {a = 1}
[artifacts]
type_aliases = {a = "b"}
[plugin]
a = 1
[state.providers.foo]
impl = "a:b"
confg = 1
[export]
stores = 1
[[list]]
a = 1
`

func TestReportsAgreeWithTheReference(t *testing.T) {
	explained := []string{"document", "stores", "stores.document.extra", "model.base_url", "model.api_key", "model.params.big",
		"model.headers.X-A", "model.nothing", "plugins", `plugins."x.oauth".a`, "plugins.nope", "sandbox.providers",
		"stores.secret.secret_name", "agents.default_a2a_agent_id", "sanbox.x", "nothing.here", ""}
	tests := []struct {
		name    string
		file    string // "" for none
		env     map[string]string
		explain []string
	}{
		{name: "nothing configured", explain: []string{"model.base_url", "plugins"}},
		{name: "everything", file: fullFile, explain: explained},
		{name: "variables", file: fullFile, explain: []string{"document", "model.base_url", "stores.document.config.path", "conversations.default_human_a2a_url"},
			env: map[string]string{"AGENT_ENV_DOCUMENT_STORE": "local", "AGENT_ENV_OBJECT_STORE": "bogus", "LITELLM_BASE_URL": "https://u:p@env", "LITELLM_API_KEY": "k",
				"AGENT_ENV_HUMAN_A2A_URL": "hu", "DB": "d", "AGENT_ENV_FIXTURE_PREFIX": "p"}},
		{name: "mistyped", file: "sandbox = 5\nmodel = \"x\"\nplugins = 3\n[stores]\ndocument = \"mongo\"\nobject = \"bogus\"\nimage = \"local\"\ndocumnet = \"local\"\n[stores.imag]\nimpl = \"a:b\"\n",
			explain: []string{"stores", "document", "model.base_url", "sandbox.default"}},
		{name: "malformed", file: "a = \n[model\n", explain: []string{"document", "model.x"}, env: map[string]string{"AGENT_ENV_IMAGE_STORE": "local"}},
		{name: "twice", file: "[plugins]\nA_b = {}\na-b = {}\n", explain: []string{"plugins.a_b"}},
		{name: "named by the variable", env: map[string]string{"AGENT_ENV_CONFIG": "/nope"}, explain: []string{"document"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // the reference waits for its imports most of the time
			w := newWorld(t)
			if test.file != "" {
				w.file(test.file)
			}
			maps.Copy(w.env, test.env)
			c := w.load()
			compare := func(what string, ours, theirs *doc.Object) {
				t.Helper()
				a, b := comparable(ours, ""), comparable(theirs, "")
				if !doc.Equal(a, b) {
					t.Errorf("%s differs:\n%s", what, difference(a, b, ""))
				}
			}
			compare("show", c.Show().JSON(), w.reference("show"))
			compare("sources", config.SourcesJSON(c.Sources()), w.reference("sources"))
			compare("debug", config.DebugJSON(c.Debug()), w.reference("debug"))
			for _, path := range test.explain {
				compare("explain "+path, c.Explain(path).JSON(), w.reference("explain", path))
			}
			if _, err := os.Stat(w.state); err == nil {
				t.Errorf("%s was created by a report", filepath.Base(w.state))
			}
		})
	}
}

// difference names the places in which two values differ.
func difference(a, b any, path string) string {
	if doc.Equal(a, b) {
		return ""
	}
	x, ok := a.(*doc.Object)
	y, both := b.(*doc.Object)
	if ok && both {
		var out string
		for _, k := range slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(x.Keys()), y.Keys()...)))) {
			out += difference(x.Value(k), y.Value(k), path+"."+k)
		}
		return out
	}
	p, ok := a.([]any)
	q, both := b.([]any)
	if ok && both && len(p) == len(q) {
		var out string
		for i := range p {
			out += difference(p[i], q[i], path+"["+string(doc.Int(i))+"]")
		}
		return out
	}
	ours, _ := doc.Compact(a)
	theirs, _ := doc.Compact(b)
	return "  " + path + "\n    ours      " + string(ours) + "\n    reference " + string(theirs) + "\n"
}
