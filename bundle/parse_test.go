package bundle_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/bundle"
	"agentenv/fault"
)

const vm = `{"id":"b","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"vm","sandbox_type":"local"}`

func TestParseProblems(t *testing.T) {
	deepJSON := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	deepTOML := "x = " + strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000)
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"all at once": {map[string]string{"Agents/x/agent.toml": "", "envs/e/server.py": "", "evals/e.toml": "x =", "tasks/t.json": "{}"}, []string{
			"Agents: rename to agents; names are case-sensitive", "envs/e: needs a Dockerfile or an env.toml",
			"evals/e.toml: malformed TOML: … (at line 1, column", "tasks/t.json: a task file must be a JSON array of step objects, or an object that holds it under \"steps\""}},
		"not a bundle":          {map[string]string{"x.txt": ""}, []string{"not a bundle: it has none of envs/"}},
		"reserved":              {map[string]string{"Bundle.TOML": "", "tasks/t.json": "[" + vm + "]"}, []string{"Bundle.TOML: the name is reserved"}},
		"kind is a file":        {map[string]string{"tasks": "x"}, []string{"tasks: not a folder"}},
		"empty task":            {map[string]string{"tasks/t.json": "[]"}, []string{"tasks/t.json: the task has no steps"}},
		"duplicate keys":        {map[string]string{"tasks/t.json": `[{"id":"a","id":"b"}]`}, []string{"tasks/t.json: not valid JSON"}},
		"not a number":          {map[string]string{"tasks/t.json": `[{"id":NaN}]`}, []string{"tasks/t.json: not valid JSON"}},
		"too large a number":    {map[string]string{"tasks/t.json": `[{"id":1e999}]`}, []string{"tasks/t.json: not valid JSON"}},
		"deep JSON":             {map[string]string{"tasks/t.json": deepJSON}, []string{"tasks/t.json: not valid JSON: … deep"}},
		"deep TOML":             {map[string]string{"evals/t.toml": deepTOML}, []string{"evals/t.toml: malformed TOML: nested more than 200 deep"}},
		"large":                 {map[string]string{"tasks/t.json": "[" + strings.Repeat(" ", 8<<20) + "]"}, []string{"tasks/t.json: larger than 8 MiB"}},
		"pipes":                 {map[string]string{"tasks/t.json": "|", "artifacts/a/x": "", "artifacts/a/artifact.toml": "|"}, []string{"artifacts/a/artifact.toml: not a regular file", "tasks/t.json: neither a regular file nor a folder"}},
		"folder in tasks":       {map[string]string{"tasks/t.json/x": ""}, []string{"tasks/t.json: a folder"}},
		"suffix in capitals":    {map[string]string{"tasks/t.JSON": "[]"}, []string{"tasks/t.JSON: rename"}},
		"case pair":             {map[string]string{"artifacts/Data/x": "", "artifacts/data/x": ""}, []string{"artifacts/data: differs from artifacts/Data only in case"}},
		"wrong case files":      {map[string]string{"artifacts/a/dockerfile": "", "envs/e/env.TOML": "", "skills/s/skill.md": ""}, []string{"artifacts/a/dockerfile: rename to Dockerfile", "envs/e/env.TOML: rename to env.toml", "envs/e: needs", "skills/s/skill.md: rename to SKILL.md", "skills/s: a skill needs SKILL.md"}},
		"both cases":            {map[string]string{"artifacts/a/dockerfile": "", "artifacts/a/Dockerfile": ""}, []string{"artifacts/a/dockerfile: differs from Dockerfile"}},
		"nothing in it":         {map[string]string{"artifacts/a/.DS_Store": "", "artifacts/b/artifact.toml": ""}, []string{"artifacts/a: an artifact folder has nothing in it … don't count", "artifacts/b: an artifact folder has nothing in it"}},
		"double underscore":     {map[string]string{"artifacts/a__b/x": ""}, []string{`artifacts/a__b: "__" is reserved … (e.g. a-b)`}},
		"skill among artifacts": {map[string]string{"artifacts/a/SKILL.md": ""}, []string{"artifacts/a: a skill belongs in skills/"}},
		"one name twice":        {map[string]string{"artifacts/a/x": "", "skills/a/SKILL.md": ""}, []string{"skills/a: has the id", "skills/a: has the name of artifacts/a"}},
		"broken links":          {map[string]string{"artifacts/a/l": "->/nowhere/at/all", "artifacts/loop": "->loop", "artifacts/b": "->gone"}, []string{"artifacts/a/l: a broken symlink", "artifacts/b: a broken symlink", "artifacts/loop: a loop of symlinks"}},
		"declared ids": {map[string]string{"artifacts/a/x": "", "artifacts/a/artifact.toml": `id = "bare"`, "artifacts/b/x": "", "artifacts/b/artifact.toml": `id = "@local/x__y"`,
			"artifacts/c/x": "", "artifacts/c/artifact.toml": `id = "@local/` + strings.Repeat("x", 100_000) + `"`}, []string{
			"artifacts/a/artifact.toml: id 'bare' must begin with @local/", `artifacts/b/artifact.toml: id '@local/x__y' has "__"`, "artifacts/c/artifact.toml: id '@local/xx"}},
		"eval keys":        {map[string]string{"evals/a.toml": "tasks = []\nfoo = 1", "evals/b.toml": "type = \"x\"", "evals/c.toml": "tasks = 3"}, []string{"evals/a.toml: tasks is empty", "evals/a.toml: unknown key 'foo'", "evals/b.toml: tasks is missing", "evals/b.toml: type is 'x'", "evals/c.toml: tasks must be a list"}},
		"characters in id": {map[string]string{"artifacts/a#b/x": ""}, []string{"artifacts/a#b: the name 'a#b' cannot be part of an id"}},
		"one line each":    {map[string]string{"tasks/a\n\u202eb\u2028.json": "{}"}, []string{`tasks/a\u000a\u202eb\u2028.json: a task file`, `tasks/a\u000a\u202eb\u2028.json: the name`}},
		"not UTF-8":        {map[string]string{"artifacts/a\xff/x": ""}, []string{`artifacts/a\xff: the name is not UTF-8`}},
		"aliases":          {map[string]string{"aliases.toml": "[agents]\nx = [\"UP\"]\n[other]\n"}, []string{"aliases.toml: agents.x: 'UP' is no alias", "aliases.toml: agents.x: there is no folder", "aliases.toml: unknown table 'other'"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			_, err := bundle.Parse(k.files(t, "p", c.files), k.home)
			wantProblems(t, err, c.want...)
			for _, l := range strings.Split(err.Error(), "\n") {
				if len(l) > 300 {
					t.Errorf("a problem has %d bytes", len(l))
				}
			}
		})
	}
}

func TestParseEntities(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "shop", map[string]string{
		"README.md": "---\ntitle: x\n---\n\n![badge](x)\n# The shop\nmore", "readme.MD": "other", "stray.txt": "", "other/": "", ".git/x": "", "provenance.json": "{}",
		"artifacts/file/only.txt": "x", "artifacts/file/.DS_Store": "", "artifacts/file/__pycache__/y": "",
		"artifacts/set/hello.txt": "x", "artifacts/set/.env": "x", "artifacts/dot/.env": "x", "artifacts/img/Dockerfile": "FROM scratch", "artifacts/img/SKILL.md": "x",
		"artifacts/named/x": "", "artifacts/named/artifact.toml": "\xef\xbb\xbfid = \"@local/demo/data\"\n", "artifacts/plain.txt": "x",
		"skills/s/SKILL.md": "x", "tasks/t.json": "\xef\xbb\xbf[" + vm + "]", "tasks/notes.txt": "", "evals/e.toml": `tasks = ["t"]`,
		"envs/e/Dockerfile": "FROM scratch", "agents/a/agent.toml": "", "tasks/.hidden.json": "{",
	})
	b := k.parse(t, dir)
	var got []string
	for _, e := range b.Entities {
		got = append(got, e.Path+" "+e.Store+" "+e.Type+" "+e.ID)
	}
	want := []string{
		"envs/e env mcp_server @local/~/shop/e", "agents/a agent a2a_agent @local/~/shop/a",
		"artifacts/dot artifact file @local/~/shop/dot", "artifacts/file artifact file @local/~/shop/file",
		"artifacts/img artifact docker_image @local/~/shop/img", "artifacts/named artifact file @local/demo/data",
		"artifacts/set artifact file_artifact_universe @local/~/shop/set", "skills/s artifact skill @local/~/shop/s",
		"tasks/t.json task task @local/~/shop/t", "evals/e.toml eval eval @local/~/shop/e",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if b.Description != "The shop" || b.Root != "@local/~/shop" {
		t.Errorf("description %q, root %q", b.Description, b.Root)
	}
	ignored := strings.Join(b.Ignored, " ")
	for _, want := range []string{"stray.txt", "other", "artifacts/plain.txt", "tasks/notes.txt", "readme.MD"} {
		if !strings.Contains(ignored, want) {
			t.Errorf("%s is not reported as ignored: %s", want, ignored)
		}
	}
	link := filepath.Join(k.home, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{link, filepath.Join(dir, "..", "shop"), dir + "/"} {
		if b := k.parse(t, other); b.Root != "@local/~/shop" {
			t.Errorf("%s has the root %s", other, b.Root)
		}
	}
}

func TestIDRoot(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mk := func(parts ...string) string {
		p := filepath.Join(append([]string{home}, parts...)...)
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct{ dir, home, want string }{
		{home, home, "@local/~"},
		{mk("Dropbox (Personal)"), home, "@local/~/Dropbox (Personal)"},
		{mk("C++", "R&D"), home, "@local/~/C++/R&D"},
		{mk("cafe\u0301"), home, "@local/~/caf\u00e9"},
		{mk("x"), mk("y"), "@local" + home + "/x"},
		{mk("x"), "relative", "@local" + home + "/x"},
		{mk("x"), "/", "@local" + home + "/x"},
		{mk("x"), "", "@local" + home + "/x"},
	} {
		if _, got, err := bundle.IDRoot(c.dir, c.home); err != nil || got != c.want {
			t.Errorf("%s with the home %q gives %q, %v; want %q", c.dir, c.home, got, err, c.want)
		}
	}
	for dir, kind := range map[string]fault.Kind{"/": fault.Invalid, mk("notes#1", "b"): fault.Invalid, home + "/none": fault.NotFound, "a\x00b": fault.Invalid, "\xff": fault.Invalid} {
		_, _, err := bundle.IDRoot(dir, home)
		if !fault.Is(err, kind) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %s on one line", dir, err, kind)
		}
	}
	if _, _, err := bundle.IDRoot(mk("notes#1", "b"), home); !strings.Contains(err.Error(), "'notes#1'") {
		t.Errorf("%v does not name the folder", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("[{\"id\":\"a\",\"type\":\"wait\"}]"), []byte("tasks = [\"t\"]"), []byte("type = \"file\""))
	f.Add([]byte("[[["), []byte("x = [[["), []byte("[a]\nb = 1979-05-27T07:32:00.5Z"))
	f.Add([]byte("\xef\xbb\xbf[]"), []byte("a.b.c = {d = nan}"), []byte("id = \"@local/x\""))
	f.Fuzz(func(t *testing.T, task, eval, artifact []byte) {
		k := newKit(t)
		dir := k.files(t, "p", nil)
		for name, text := range map[string][]byte{"tasks/t.json": task, "evals/e.toml": eval, "artifacts/a/artifact.toml": artifact, "artifacts/a/x": nil} {
			p := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b, err := bundle.Parse(dir, k.home)
		if err == nil {
			err = bundle.Check(t.Context(), k.registry, b)
		}
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Fatalf("%s: %v", fault.KindOf(err), err)
		}
	})
}
