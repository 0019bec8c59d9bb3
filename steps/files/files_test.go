package files

import (
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

func list(t *testing.T, text string) []any {
	t.Helper()
	v, err := doc.Parse([]byte(text), doc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return v.([]any)
}

func TestURLNames(t *testing.T) {
	for text, want := range map[string]string{
		`["https://x/a.tar.gz","https://y/a.tar.gz?q=1"]`:                         "a.tar.gz a.tar-1.gz",
		`["https://x/dir%2Ffile.txt"]`:                                            "file.txt",
		`["https://x"]`:                                                           "downloaded",
		`["https://x/a/","https://y/"]`:                                           "downloaded downloaded-1",
		`["https://x/.env","https://y/.env","https://z/.env"]`:                    ".env .env-1 .env-2",
		`[{"url":"https://x/y","filename":"n ö.txt"}]`:                            "n ö.txt",
		`["https://x/..%2F.."]`:                                                   "! no file name",
		`["https://x/a%00b"]`:                                                     "! no file name",
		`["ftp://x/a"]`:                                                           "! no http",
		`["/etc/passwd"]`:                                                         "! no http",
		`[{"url":"https://x","filename":"../x"}]`:                                 "! plain name",
		`[{"url":"https://x","filename":".."}]`:                                   "! plain name",
		`[{"url":"https://x"}]`:                                                   "! needs url and filename",
		`[{"url":"https://x","filename":"a","mode":1}]`:                           "! exactly the keys",
		`[{"url":"https://x","filename":"a"},{"url":"https://y","filename":"a"}]`: "! two entries",
		`["https://x/a",{"url":"https://y","filename":"a"}]`:                      "! another entry has",
		`[5]`: "! holds a number",
		`["https://x/b","https://y/b",{"url":"https://y","filename":"b-1"}]`: "! another entry has",
		`[{"url":"https://y","filename":"c"},"https://x/d"]`:                 "c d",
	} {
		got, err := fetches(list(t, text))
		if why, bad := strings.CutPrefix(want, "! "); bad {
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v, want %q", text, err, why)
			}
			continue
		}
		var names []string
		for _, f := range got {
			names = append(names, f.name)
		}
		if err != nil || strings.Join(names, " ") != want {
			t.Errorf("%s: %v, %v; want %s", text, names, err, want)
		}
	}
}

func FuzzURLNames(f *testing.F) {
	f.Add("https://x/a%2f..%2fb.tar.gz?q#f")
	f.Add("http://[::1]:80//")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := fetches([]any{raw, raw})
		if err != nil {
			return
		}
		for _, g := range got {
			if !plainName(g.name) {
				t.Fatalf("%q is named %q", raw, g.name)
			}
		}
		if got[0].name == got[1].name {
			t.Fatalf("two of one name: %q", got[0].name)
		}
	})
}

func parseStep(t *testing.T, text string) (*task.Step, error) {
	t.Helper()
	reg, err := task.NewRegistry(Types(Deps{})...)
	if err != nil {
		t.Fatal(err)
	}
	tk, err := reg.ParseText("t", []byte("["+text+"]"), task.ParseOptions{})
	if err != nil {
		return nil, err
	}
	return tk.Steps[0], nil
}

func TestLoadFields(t *testing.T) {
	s, err := parseStep(t, `{"id":"l","type":"load_artifact","artifact_id":"a","artifact_version":2,"sandbox_name":"box","destination_path":"/data//"}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := doc.Canonical(s.Fields.Value("artifacts")); got != `[{"id":"a","version":2}]` {
		t.Errorf("the shorthand is stored as %s", got)
	}
	if _, there := s.Fields.Get("artifact_id"); there {
		t.Error("the shorthand itself is not stored")
	}
	if s.Action.(*load).destination != "/data" || s.Fields.Str("destination_path") != "/data//" {
		t.Errorf("destination %q, stored %q", s.Action.(*load).destination, s.Fields.Str("destination_path"))
	}
	const head = `{"id":"l","type":"load_artifact",`
	for text, want := range map[string]string{
		`"artifacts":[{"id":"one"},{"id":"two","version":null},{"id":"three","version":3}]`: `[{"id":"one"},{"id":"two","version":null},{"id":"three","version":3}]`,
		`"artifact_id":"a"`: `[{"id":"a","version":null}]`,
		`"urls":[]`:         `[]`,
	} {
		if s, err = parseStep(t, head+text+`,"sandbox_name":"box"}`); err != nil || doc.Canonical(s.Fields.Value("artifacts")) != want {
			t.Errorf("%s is stored as %v, %v", text, s, err)
		}
	}
	for given, want := range map[string]string{"/x/../y": "/y", "/": "/", "//": "/", "/a//b/": "/a/b"} {
		if s, err = parseStep(t, head+`"artifact_id":"a","sandbox_name":"box","destination_path":"`+given+`"}`); err != nil || s.Action.(*load).destination != want {
			t.Errorf("destination %s: %v, %v", given, s, err)
		}
	}
	for text, want := range map[string]string{
		head + `"artifact_id":"a","artifacts":[{"id":"b"}],"sandbox_name":"x"}`:             "not both",
		head + `"artifacts":[{"id":""}],"sandbox_name":"x"}`:                                "artifacts[0]",
		head + `"artifacts":[{"id":"b","version":0}],"sandbox_name":"x"}`:                   "at least 1",
		head + `"artifacts":[{"id":"b","version":1.5}],"sandbox_name":"x"}`:                 "at least 1",
		head + `"artifact_id":"a","artifact_from_step_id":"c","sandbox_name":"x"}`:          "used alone",
		head + `"urls":["https://x"],"collected_artifacts_step_id":"c","sandbox_name":"x"}`: "used alone",
		head + `"artifact_id":"a"}`:                                                          "needs a target",
		head + `"artifact_id":"a","container_name":"c"}`:                                     "needs a target",
		head + `"artifact_id":"a","env_id":"e","container_name":"c"}`:                        "needs sandbox_name",
		head + `"artifact_id":"a","agent_name":"s","sandbox_name":"x","container_name":"c"}`: "not both",
		head + `"urls":["https://x"],"env_id":"e"}`:                                          "need a sandbox_name",
	} {
		if _, err := parseStep(t, text); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		head + `"sandbox_name":"x"}`: "names nothing",
		head + `"artifact_id":"a","sandbox_name":"x","destination_path":"rel"}`: "absolute",
		head + `"artifact_id":"a","sandbox_name":"x","destination_path":"~/x"}`: "absolute",
	} {
		s, err := parseStep(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Kind.Check(s), "; "); !strings.Contains(got, want) {
			t.Errorf("%s: problems %q, want %q", text, got, want)
		}
	}
}

func TestCollectFields(t *testing.T) {
	const head = `{"id":"c","type":"collect_artifacts",`
	s, err := parseStep(t, head+`"sandbox_name":"box","agent_name":"default-agent","base_path":"/out/","exclude_basenames":["b","a","b"]}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := doc.Canonical(s.Fields); !strings.Contains(got, `"exclude_basenames":["a","b"]`) || !strings.Contains(got, `"base_path":"/out"`) {
		t.Errorf("stored %s", got)
	}
	if s, err = parseStep(t, head+`"sandbox_name":"box","base_path":"/"}`); err != nil || s.Fields.Str("base_path") != "/" {
		t.Errorf("the root stays the root: %v, %v", s, err)
	}
	if s, err = parseStep(t, head+`"sandbox_name":"box","base_path":""}`); err != nil || s.Fields.Str("base_path") != "/" || s.Action.(*collect).base != "/" {
		t.Errorf("an empty base_path is the root: %v, %v", s, err)
	}
	for text, want := range map[string]string{
		head + `"env_id":"e","agent_name":"x"}`:           "not both",
		head + `"sandbox_name":"b","agent_name":"x"}`:     "not several",
		head + `"sandbox_name":"b","env_id":"x"}`:         "not several",
		head + `"container_name":"b"}`:                    "needs sandbox_name",
		head + `"sandbox_name":"b","artifact_paths":[1]}`: "artifact_paths",
	} {
		if _, err := parseStep(t, text); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestWhatIsCollected(t *testing.T) {
	resolve := func(fields, meta string) (string, bool, error) {
		s, err := parseStep(t, `{"id":"c","type":"collect_artifacts","sandbox_name":"b","base_path":"/app/w",`+fields+`}`)
		if err != nil {
			t.Fatal(err)
		}
		m, err := doc.ParseObject([]byte(meta), doc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := task.NewRun("c", s.Type, task.NewContext().Set("metadata", m), nil, nil)
		g := &gathered{}
		items, listed, err := s.Action.(*collect).resolve(r, g)
		if len(g.refused) > 0 {
			err = g.refused[0]
		}
		var out []string
		for _, it := range items {
			out = append(out, it.key+"|"+it.source+"|"+it.object)
		}
		return strings.Join(out, " "), listed, err
	}
	for _, c := range []struct {
		fields, meta, want string
		listed             bool
	}{
		{`"artifact_paths":["a.txt","/etc/x","sub/"]`, `{}`, "a.txt|/app/w/a.txt|a.txt /etc/x|/etc/x|etc/x sub/|/app/w/sub|sub/", true},
		{`"artifact_paths":["s/../a.txt","../w/d/","/x/../y"]`, `{}`, "s/../a.txt|/app/w/a.txt|a.txt ../w/d/|/app/w/d|d /x/../y|/y|y", true},
		{`"artifact_paths":["https://x/y","s3://b/k"]`, `{}`, "", true},
		{`"artifact_paths":[]`, `{}`, "", false},
		{`"artifact_paths":["a"]`, `{"seed":{"expected_artifacts":" b , c,, "}}`, "b|/app/w/b|b c|/app/w/c|c", true},
		{`"artifact_paths":["a"]`, `{"user_overrides":{"step_params":{"c":{"artifact_paths":"o"}}}}`, "o|/app/w/o|o", true},
		{`"manifest_step_id":"p","exclude_basenames":["no"]`, `{"structured_outputs":{"p":{"artifacts":{"r":"/app/w/d/r.md","x":"/app/wx/r.md","n":"/app/w/no","g":"/app/w/*","i":5}}}}`,
			"r|/app/w/d/r.md|d/r.md x|/app/wx/r.md|r.md", true},
	} {
		got, listed, err := resolve(c.fields, c.meta)
		if err != nil || got != c.want || listed != c.listed {
			t.Errorf("%s with %s: %q, listed %t, %v; want %q, %t", c.fields, c.meta, got, listed, err, c.want, c.listed)
		}
	}
	for _, bad := range []string{`"artifact_paths":["../x"]`, `"artifact_paths":["a/.."]`, `"artifact_paths":["a/../"]`, `"artifact_paths":["/a/.."]`,
		`"artifact_paths":["a/../../x"]`, `"artifact_paths":["../../etc/passwd"]`} {
		if _, _, err := resolve(bad, `{}`); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `".."`) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, _, err := resolve(`"manifest_step_id":"p"`, `{}`); !fault.Is(err, fault.Invalid) || fault.ClassOf(err) != "RuntimeError" {
		t.Errorf("an empty manifest: %v", err)
	}
}
