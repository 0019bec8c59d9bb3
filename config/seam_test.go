package config_test

import (
	"errors"
	"path/filepath"
	"testing"

	"agentenv/config"
	"agentenv/fault"
	"agentenv/store/doc"
)

func TestSeam(t *testing.T) {
	const sqlite = "agent_env.store.document_store:LocalSqliteDocumentStore"
	tests := []struct {
		name, seam, file string
		env              map[string]string
		want             config.Choice
		config           *doc.Object
	}{
		{name: "default", seam: "runner", want: config.Choice{Backend: "local", Alias: "local", Where: "built-in default"}, config: &doc.Object{}},
		{name: "alias in the file", seam: "image", file: "[stores]\nimage = \"local\"", want: config.Choice{Backend: "localregistry", Alias: "local", Where: "[stores.image]"},
			config: doc.Of("registry_host", "localhost:5000", "repository_prefix", "")},
		{name: "table", seam: "document", file: "[stores.document]\nimpl = \"" + sqlite + "\"\nconfig = {path = \"env:P?/d\"}\n",
			want: config.Choice{Backend: "sqlite", Where: "[stores.document]"}, config: doc.Of("path", "/d")},
		{name: "another spelling of the pointer", seam: "document", file: "[stores.document]\nimpl = \"agent_env.store:LocalSqliteDocumentStore\"\nconfig = {path = \"/d\"}\n",
			want: config.Choice{Backend: "sqlite", Where: "[stores.document]"}, config: doc.Of("path", "/d")},
		{name: "variable over file", seam: "object", file: "[stores.object]\nimpl = \"x:Y\"", env: map[string]string{"AGENT_ENV_OBJECT_STORE": "local"},
			want: config.Choice{Backend: "localfs", Alias: "local", Where: "$AGENT_ENV_OBJECT_STORE"}},
		{name: "empty variable", seam: "secret", file: "[stores.secret]\nimpl = \"agent_env.store:LocalSecretStore\"\nconfig = {use_env = false, values = {A = \"env:A?\"}}\n",
			env: map[string]string{"AGENT_ENV_SECRET_STORE": ""}, want: config.Choice{Backend: "envfile", Where: "[stores.secret]"},
			config: doc.Of("use_env", false, "values", doc.Of("A", ""))},
		{name: "a broken table beaten by a variable", seam: "document", file: "stores = 5", env: map[string]string{"AGENT_ENV_DOCUMENT_STORE": "local"},
			want: config.Choice{Backend: "sqlite", Alias: "local", Where: "$AGENT_ENV_DOCUMENT_STORE"}},
		{name: "dates are text", seam: "secret", file: "[stores.secret]\nimpl = \"agent_env.store:LocalSecretStore\"\nconfig = {values = {D = 2024-01-02}, use_env = true}\n",
			want: config.Choice{Backend: "envfile", Where: "[stores.secret]"}, config: doc.Of("values", doc.Of("D", "2024-01-02"), "use_env", true)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			if test.file != "" {
				w.file(test.file)
			}
			for k, v := range test.env {
				w.env[k] = v
			}
			got, err := w.load().Seam(test.seam)
			if err != nil {
				t.Fatal(err)
			}
			if got.Backend != test.want.Backend || got.Alias != test.want.Alias || got.Where != test.want.Where {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if test.config != nil {
				equal(t, got.Config, test.config)
			}
		})
	}
}

func TestSeamDefaultsLieInTheStateRoot(t *testing.T) {
	w := newWorld(t)
	c := w.load()
	for seam, want := range map[string][2]string{"document": {"path", "document_store/documents.db"}, "object": {"root", "object_store"}} {
		got, err := c.Seam(seam)
		if err != nil {
			t.Fatal(err)
		}
		if p := got.Config.Str(want[0]); p != filepath.Join(w.state, "agent-env", want[1]) {
			t.Errorf("%s: %s", seam, p)
		}
	}
}

func TestSeamErrors(t *testing.T) {
	tests := []struct {
		name, seam, file, env string
		kind                  fault.Kind
		says                  []string
	}{
		{"number", "document", "[stores]\ndocument = 5", "", fault.Invalid, []string{"[stores.document] must be a string or a table", "int"}},
		{"mongo", "document", "", "mongo", fault.Invalid, []string{"AGENT_ENV_DOCUMENT_STORE", "no built-in coordinates"}},
		{"unknown alias", "document", "", "bogus", fault.Invalid, []string{"AGENT_ENV_DOCUMENT_STORE", `"bogus"`, "[stores.document]"}},
		{"a password in an alias", "document", "", "mongodb://u:pw@h", fault.Invalid, []string{"mongodb://***@h"}},
		{"no impl", "document", "[stores.document]\nconfig = {}", "", fault.Invalid, []string{"[stores.document]", "impl"}},
		{"impl no text", "document", "[stores.document]\nimpl = 5", "", fault.Invalid, []string{"int"}},
		{"impl without class", "document", "[stores.document]\nimpl = \"a:\"", "", fault.Invalid, []string{"module:Class", `"a:"`}},
		{"config no table", "document", "[stores.document]\nimpl = \"a:B\"\nconfig = 5", "", fault.Invalid, []string{"[stores.document.config] must be a table", "int"}},
		{"Python", "document", "[stores.document]\nimpl = \"acme:Store\"", "", fault.Invalid, []string{"acme:Store", "Python"}},
		{"wrong kind", "document", "[stores.document]\nimpl = \"agent_env.store:LocalSecretStore\"", "", fault.Invalid, []string{"secret stores", "document stores"}},
		{"not yet", "document", "[stores.document]\nimpl = \"agent_env.store:MongoDocumentStore\"\nconfig = {uri = \"mongodb://u:pw@h\"}", "", fault.Unsupported, []string{"not supported yet", "MongoDocumentStore"}},
		{"keys", "document", "[stores.document]\nimpl = \"agent_env.store:LocalSqliteDocumentStore\"\nconfig = {z = 1, b = 2}", "", fault.Invalid, []string{"unknown keys 'b' and 'z'", "lacks 'path'", "takes 'path'"}},
		{"unset variable", "document", "[stores.document]\nimpl = \"agent_env.store:LocalSqliteDocumentStore\"\nconfig = {path = \"env:NOPE\"}", "", fault.Invalid, []string{"env:NOPE"}},
		{"a secret in the secret store", "secret", "[stores.secret]\nimpl = \"agent_env.store:LocalSecretStore\"\nconfig = {file_path = \"secret:X?d\"}", "", fault.Invalid, []string{"secret:X"}},
		{"keys of a runner", "runner", "[runner]\nimpl = \"agent_env.runner.local_runner:LocalRunner\"\nconfig = {workers = 1}", "", fault.Invalid, []string{"takes no keys"}},
		{"stores no table", "image", "stores = 5", "", fault.Invalid, []string{"[stores] must be a table", "int"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			if test.file != "" {
				w.file(test.file)
			}
			w.env["AGENT_ENV_DOCUMENT_STORE"] = test.env
			c := w.load()
			_, err := c.Seam(test.seam)
			fails(t, err, test.kind, test.says...)
			if _, again := c.Seam(test.seam); again == nil || again.Error() != err.Error() {
				t.Errorf("a second read differs: %v", again)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	const head = "[stores.image]\nimpl = \"agent_env.store:LocalRegistryImageStore\"\n[stores.image.config.credentials]\n"
	w := newWorld(t)
	w.file(head + "impl = \"agent_env.store:SecretStoreCredentials\"\nsecret_key = \"env:K?logins\"\n")
	got, err := w.load().Seam("image")
	if err != nil {
		t.Fatal(err)
	}
	if got.Credentials == nil || got.Credentials.Backend != "secret" {
		t.Fatalf("credentials %+v", got.Credentials)
	}
	equal(t, got.Credentials.Config, doc.Of("secret_key", "logins"))
	for _, test := range []struct {
		file string
		kind fault.Kind
		says string
	}{
		{"secret_key = \"x\"", fault.Invalid, "impl"},
		{"impl = \"agent_env.store:SecretStoreCredentials\"\nregion = \"x\"", fault.Invalid, "'region'"},
		{"impl = \"agent_env.store:EcrCredentials\"", fault.Unsupported, "not supported yet"},
		{"impl = \"agent_env.store:LocalSecretStore\"", fault.Invalid, "registry credentials"},
	} {
		w.file(head + test.file)
		_, err := w.load().Seam("image")
		fails(t, err, test.kind, test.says)
	}
}

func TestReferences(t *testing.T) {
	secrets := func(name string) (string, bool, error) {
		switch name {
		case "K":
			return "found", true, nil
		case "EMPTY":
			return "", true, nil
		case "BROKEN":
			return "", false, errors.New("the store is down")
		}
		return "", false, nil
	}
	tests := []struct{ in, want, says string }{
		{"env:A", "value", ""},
		{"env:MISSING?a?b", "a?b", ""},
		{"env:MISSING?", "", ""},
		{"env:EMPTY?d", "", ""},
		{"env:MISSING", "", "env:MISSING"},
		{"secret:K", "found", ""},
		{"secret:EMPTY?d", "", ""},
		{"secret:NONE?d", "d", ""},
		{"secret:NONE", "", "secret:NONE"},
		{"secret:BROKEN?d", "", "the store is down"},
		{" env:A", " env:A", ""},
		{"ENV:A", "ENV:A", ""},
		{"x env:A", "x env:A", ""},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			w := newWorld(t)
			w.env["A"], w.env["EMPTY"] = "value", ""
			w.file("[plugins.p]\nx = [{y = \"" + test.in + "\"}, 1]\n")
			c := w.load()
			c.SetSecrets(secrets)
			got, err := c.Plugin("p")
			if test.says != "" {
				fails(t, err, fault.Invalid, test.says, "[plugins.p]")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			equal(t, got, doc.Of("x", []any{doc.Of("y", test.want), doc.Int(1)}))
		})
	}
	t.Run("the store is not asked without a reference", func(t *testing.T) {
		w := newWorld(t)
		w.file("[plugins.p]\nx = \"env:A?d\"\n")
		c := w.load()
		c.SetSecrets(func(string) (string, bool, error) { t.Error("asked"); return "", false, nil })
		if _, err := c.Plugin("p"); err != nil {
			t.Error(err)
		}
		c.Show()
		c.Check()
	})
}
