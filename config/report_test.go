package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv/config"
	"agentenv/store/doc"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

func TestShowWithoutAnything(t *testing.T) {
	w := newWorld(t)
	c := w.load()
	r := c.Show().JSON()
	if r.Value("config_path") != nil || r.Str("config_source") != "none" || r.Str("search_root") != w.dir {
		t.Errorf("head: %v %v %v", r.Value("config_path"), r.Value("config_source"), r.Value("search_root"))
	}
	var names []string
	for _, s := range r.Arr("sections") {
		names = append(names, s.(*doc.Object).Str("name"))
	}
	want := []string{"document", "object", "image", "secret", "runner", "model", "conversations", "agents", "sandbox", "state", "envs", "artifacts", "task_steps", "explorer"}
	if !slices.Equal(names, want) {
		t.Errorf("sections %v", names)
	}
	root := filepath.Join(w.state, "agent-env")
	for name, kv := range map[string][2]string{"document": {"path", root + "/document_store/documents.db"}, "object": {"root", root + "/object_store"}, "image": {"registry_host", "localhost:5000"}} {
		if got := section(t, c, name).Obj("config").Str(kv[0]); got != kv[1] {
			t.Errorf("%s %s = %q, want %q", name, kv[0], got, kv[1])
		}
	}
	c.Explain("stores")
	c.Sources()
	c.Debug()
	c.Check()
	if _, err := os.Stat(w.state); !os.IsNotExist(err) {
		t.Errorf("reports created the state folder (%v)", err)
	}
}

func TestShowAFailedSearch(t *testing.T) {
	w := newWorld(t)
	w.env["AGENT_ENV_CONFIG"] = "/nope"
	c := w.load()
	r := c.Show()
	if o := r.JSON(); o.Str("config_source") != "error" || len(o.Arr("sections")) != 0 || !contains(o.Str("error"), "AGENT_ENV_CONFIG") {
		t.Errorf("report %+v", o)
	}
	if !contains(r.Text(), "the search failed") {
		t.Errorf("text:\n%s", r.Text())
	}
}

func TestPrecedence(t *testing.T) {
	w := newWorld(t)
	w.file("[stores.document]\nimpl = \"agent_env.store:MongoDocumentStore\"\nconfig = {uri = \"mongodb://bob:pw@h/db\", database = \"env:DB?x\"}\n")
	text := w.load().Show().Text()
	for _, s := range []string{"uri=mongodb://***@h/db", "database=env:DB?x", "from [stores.document]"} {
		if !contains(text, s) {
			t.Errorf("show does not say %q:\n%s", s, text)
		}
	}
	w.env["AGENT_ENV_DOCUMENT_STORE"] = "local"
	text = w.load().Explain("document").Text()
	for _, s := range []string{"LocalSqliteDocumentStore", "from $AGENT_ENV_DOCUMENT_STORE", "; MongoDocumentStore in [stores.document], shadowed"} {
		if !contains(text, s) {
			t.Errorf("explain does not say %q:\n%s", s, text)
		}
	}
}

func TestMasking(t *testing.T) {
	w := newWorld(t)
	w.file(`[plugins.x-oauth]
tokens = ["a", "b"]
credentials = {user = "u", n = 5}
x = "env:A?https://u:p@h"
api_key = "secret:K?lit"
author = "me"
urls = "see http://a:b@c and ftp://d@e/f@g"
open = "plain"
X-Api-Key = "k"
port = 5
[model]
api_key = 123
headers = {X-Any = "v", Y = "env:B"}
[stores.secret]
impl = "agent_env.store:LocalSecretStore"
config = {values = {DB = "pw", E = "env:E?lit"}, file_path = "f"}
`)
	c := w.load()
	tables := c.Show().JSON().Obj("plugins").Arr("tables")
	equal(t, tables[0].(*doc.Object).Value("value"), doc.Of("tokens", []any{"***", "***"}, "credentials", doc.Of("user", "***", "n", "***"),
		"x", "env:A?https://***@h", "api_key", "secret:K?***", "author", "***", "urls", "see http://***@c and ftp://***@e/f@g", "open", "plain",
		"X-Api-Key", "***", "port", doc.Int(5)))
	equal(t, section(t, c, "model").Value("value"), doc.Of("api_key", "***", "headers", doc.Of("X-Any", "***", "Y", "env:B")))
	equal(t, section(t, c, "secret").Obj("config"), doc.Of("values", doc.Of("DB", "***", "E", "env:E?***"), "file_path", "f"))
	for _, path := range []string{"stores.secret.config.values.DB", "model.api_key", "plugins.x-oauth.tokens.0"} {
		if v := c.Explain(path).Value; v != "***" {
			t.Errorf("explain %s shows %v", path, v)
		}
	}
	if text := c.Show().Text(); contains(text, "pw") || contains(text, "?lit") {
		t.Errorf("a secret is in the text:\n%s", text)
	}
	w.env["LITELLM_API_KEY"], w.env["LITELLM_BASE_URL"] = "hush", "https://u:hush@h"
	if text := config.SourcesText(w.load().Sources()); contains(text, "hush") {
		t.Errorf("a secret is in the sources:\n%s", text)
	}
}

func TestMistypedSectionsAreReported(t *testing.T) {
	w := newWorld(t)
	w.file("sandbox = 5\n[stores]\ndocument = 5\nsecret = {impl = 5}\n[model]\nbogus = 1\n")
	c := w.load()
	for name, says := range map[string]string{"sandbox": "[sandbox] must be a table, got int", "document": "must be a string or a table", "secret": "impl must be a string", "model": "unknown keys 'bogus'"} {
		if got := section(t, c, name).Str("error"); !contains(got, says) {
			t.Errorf("%s: error %q does not say %q", name, got, says)
		}
	}
	if v := section(t, c, "sandbox").Value("value"); v != nil {
		t.Errorf("sandbox echoes %v", v)
	}
}

func TestExplain(t *testing.T) {
	w := newWorld(t)
	w.file("[model]\nbase_url = \"https://file\"\n[plugins.\"a.b\"]\nk = [{c = 1}]\n[other]\nx = 1\n")
	w.env["LITELLM_BASE_URL"] = ""
	c := w.load()
	tests := []struct{ path, where, text string }{
		{"model.base_url", "[model.base_url]", "https://file"},
		{"agents.default_a2a_agent_id", "built-in default", "claude-code"},
		{`plugins."a.b".k.0.c`, `[plugins."a.b"]`, "1"},
		{"plugins.a-b", `[plugins."a.b"]`, "not installed"},
		{"document.config.path", "built-in default", "documents.db"},
		{"other.x", "[other.x]", "nothing reads this path"},
		{"nothing", "", "nothing supplies this path"},
		{"", "", "the path is empty"},
		{"a..b", "", "is no path"},
		{`"a`, "", "is no path"},
		{"stores", "", "stores.secret  LocalSecretStore"},
	}
	for _, test := range tests {
		e := c.Explain(test.path)
		where := ""
		if e.Winner != nil {
			where = e.Winner.Where
		}
		if where != test.where || !contains(e.Text(), test.text) {
			t.Errorf("%s: from %q, want %q; text:\n%s", test.path, where, test.where, e.Text())
		}
	}
}

func TestSources(t *testing.T) {
	w := newWorld(t)
	path := w.file("x = [\"env:L1\", {a = \"env:L1\"}]\n[model]\napi_key = \"env:LITELLM_API_KEY\"\nbase_url = \"secret:env:NO\"\n")
	w.env["AGENT_ENV_RUNNER"] = "local"
	var got []string
	for _, s := range w.load().Sources() {
		got = append(got, s.Where)
		switch s.Where {
		case "$L1":
			if s.Detail != "referenced by [x.a], [x], unset" && s.Detail != "referenced by [x], [x.a], unset" {
				t.Errorf("L1: %q", s.Detail)
			}
		case "$LITELLM_API_KEY":
			if s.Detail != "also referenced by [model.api_key]" || s.Shadows != "model.api_key" {
				t.Errorf("LITELLM_API_KEY: %+v", s)
			}
		case "$AGENT_ENV_RUNNER":
			if !s.Present || s.Detail != "local" {
				t.Errorf("AGENT_ENV_RUNNER: %+v", s)
			}
		}
	}
	want := []string{"built-in defaults", path, "$AGENT_ENV_DOCUMENT_STORE", "$AGENT_ENV_OBJECT_STORE", "$AGENT_ENV_IMAGE_STORE", "$AGENT_ENV_SECRET_STORE", "$AGENT_ENV_RUNNER",
		"$LITELLM_API_KEY", "$LITELLM_BASE_URL", "$AGENT_ENV_HUMAN_A2A_URL", "$AGENT_SANDBOX_MODE", "$AGENT_ENV_MODAL_REGION", "$AGENT_ENV_MODAL_APP_NAME",
		"$AGENT_ENV_FIXTURE_PREFIX", "$MODAL_TOKEN_ID", "$MODAL_TOKEN_SECRET", "$L1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestTextKeepsEachValueOnItsLine(t *testing.T) {
	w := newWorld(t)
	w.file("[plugins.p]\na = \"x\\ny\\\\z\"\n")
	if text := w.load().Show().Text(); !contains(text, `a=x\ny\\z`) {
		t.Errorf("text:\n%s", text)
	}
}

func TestCheck(t *testing.T) {
	w := newWorld(t)
	if p := w.load().Check(); len(p) != 0 {
		t.Errorf("defaults: %v", p)
	}
	w.file("[sandbox]\ndefault = \"local,modal\"\n[stores.document]\nimpl = \"agent_env.store:MongoDocumentStore\"\n[stores.secret]\nimpl = \"agent_env.store:LocalSecretStore\"\nconfig = {file_path = \"env:UNSET\"}\n[modle]\nbase_url = \"x\"\n[plugins.agent-env]\nmax_sandboxes = \"x\"\n")
	var got []string
	for _, p := range w.load().Check() {
		got = append(got, p.Section)
		if p.Warning != (p.Section == "") {
			t.Errorf("%+v", p)
		}
	}
	if want := []string{"document", "sandbox", "plugins.agent-env", ""}; !slices.Equal(got, want) {
		t.Errorf("sections %q, want %q", got, want)
	}
	w.file("[x\n")
	if p := w.load().Check(); len(p) != 1 || p[0].Warning {
		t.Errorf("a broken file: %v", p)
	}
}
