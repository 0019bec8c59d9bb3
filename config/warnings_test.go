package config_test

import (
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	tests := []struct {
		name, file string
		want       [][]string // for each warning, what it says
	}{
		{"nothing", "[model]\nbase_url = \"x\"\n[plugins.any]\nmodel = {}\n", nil},
		{"a stray setting, two tables", "[stores.secret]\nimpl=\"x:Y\"\nsecret_name=\"q\"\n[sanbox]\nx=1\n[task-steps]\nimpls=[]\n",
			[][]string{{"secret_name", "[stores.secret.config]"}, {"[sanbox]", "[plugins.<package>]"}, {"[task-steps]", "[task_steps]"}}},
		{"a misspelled store", "[stores]\ndocumnet = \"local\"", [][]string{{"documnet", "'document'"}}},
		{"not alike enough", "[export]\n", [][]string{{"[export]", "[plugins.<package>]"}}},
		{"a quoted label", "[sandbox.providers.\"a.b\"]\nimpl = \"m:C\"\nstray = 2\n", [][]string{{`[sandbox.providers."a.b"]`, "stray", `[sandbox.providers."a.b".config]`}}},
		{"free-form", "[model.params.tool]\nconfig = {a = 1}\na = 2\nmodel = 3\n[sandbox.attribution]\nplugins = \"x\"\n[stores.document]\nimpl = \"a:B\"\nconfig = {model = 1}\n", nil},
		{"a section below a table", "[envs]\nimpls = []\nsandbox = {default = \"x\"}\n", [][]string{{"[envs]", `"sandbox"`, "[sandbox]"}}},
		{"below a table of no meaning", "[export]\nstores = 1\n", [][]string{{"[export]", `"stores"`}, {"[export] is not read"}}},
		{"plugins of the explorer", "[explorer.plugins]\nimpls = []\n", nil},
		{"deeper", "[explorer.plugins]\nmodel = 1\n", [][]string{{"[explorer.plugins]", `"model"`}}},
		{"beside and inside config", "[stores.document]\nimpl = \"a:B\"\nuri = 1\nconfig = {uri = 2}\n", [][]string{{"'uri'", "[stores.document.config]"}}},
		{"beside and inside, in a provider", "[sandbox.providers.x]\nimpl = \"a:B\"\nuri = 1\nconfig = {uri = 2}\n", [][]string{{"'uri'", "[sandbox.providers.x.config]"}}},
		{"plugin tables", "[plugin.x]\n[Plugins]\n[plug]\n", [][]string{{"[plugin]", "[plugins]"}, {"[Plugins]", "[plugins]"}, {"[plug] is not read", "[plugins.<package>]"}}},
		{"bare keys", "default = 1\nrunnner = \"local\"\nother = 1\n", [][]string{{"'default'", "[model] or [sandbox]"}, {"'runnner'", "'runner'"}, {"'other'", "in no table"}}},
		{"a key with another dash", "[model]\nbase-url = \"x\"\n", [][]string{{"base-url", "'base_url'"}}},
		{"a list of tables", "[[list]]\na = 1\n", [][]string{{"'list'"}}},
		{"our own settings", "[plugins.agent-env]\nmax_sandbox = 1\n", [][]string{{"[plugins.agent-env]", "max_sandbox", "'max_sandboxes'"}}},
		{"a very long key", strings.Repeat("a", 5000) + " = 1\n", [][]string{{"is not read"}}},
		{"broken", "[x", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.file(test.file)
			w.env["AGENT_ENV_DOCUMENT_STORE"] = "local" // the file is looked at all the same
			got := w.load().Warnings()
			if len(got) != len(test.want) {
				t.Fatalf("warnings %q, want %d", got, len(test.want))
			}
			for i, says := range test.want {
				for _, s := range says {
					if !strings.Contains(got[i], s) {
						t.Errorf("warning %q does not say %q", got[i], s)
					}
				}
			}
		})
	}
}
