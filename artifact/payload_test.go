package artifact_test

import (
	"archive/zip"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store/object"
)

func zipped(t testing.TB, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, err := w.Create(files[i])
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(f, files[i+1])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// claiming makes a zip whose one file says that it is so large unpacked.
func claiming(t testing.TB, size uint64) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	if _, err := w.CreateRaw(&zip.FileHeader{Name: "root/big", Method: zip.Deflate, UncompressedSize64: size}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPayload(t *testing.T) {
	s := newStage(t, nil)
	data := `{"files":[{"path":"docs/r.md","content":"no"},{"path":"b.bin","content":"AAE=","encoding":"base64"},{"content":"x"}]}`
	for name, c := range map[string]struct {
		body  string
		order []string
		want  map[string]string
		err   string
	}{
		"zip with data": {zipped(t, "root/", "", "root/docs/r.md", "root\n", "data.json", data, "stray", "x"), []string{"docs/r.md", "b.bin"},
			map[string]string{"docs/r.md": "root\n", "b.bin": "\x00\x01"}, ""},
		"json":        {data, []string{"docs/r.md", "b.bin"}, map[string]string{"docs/r.md": "no", "b.bin": "\x00\x01"}, ""},
		"no files":    {`{"files":null}`, nil, map[string]string{}, ""},
		"empty":       {`{}`, nil, map[string]string{}, ""},
		"backslashes": {`{"files":[{"path":".\\a\\\\b","content":"é"}]}`, []string{"a/b"}, map[string]string{"a/b": "é"}, ""},
		"leads out":   {`{"files":[{"path":"a/../../b"}]}`, nil, nil, "a/../../b"},
		"zip out":     {zipped(t, "root/../../x", "y"), nil, nil, "leads out"},
		"names none":  {`{"files":[{"path":"./"}]}`, nil, nil, "names no file"},
		"no base64":   {`{"files":[{"path":"a","content":"*","encoding":"base64"}]}`, nil, nil, "base64"},
		"no object":   {`[1]`, nil, nil, "neither a zip nor"},
		"files":       {`{"files":{"a":1}}`, nil, nil, "must be a list"},
		"zip bomb":    {claiming(t, 3<<30), nil, nil, "zip bomb"},
		"vast zip":    {claiming(t, 1<<62), nil, nil, "more than 64 GiB"},
		"cut zip":     {"PK\x03\x04junk", nil, nil, "is none"},
	} {
		t.Run(name, func(t *testing.T) {
			e := need[*artifact.Environment](t)(s.store.PutEnvironment(t.Context(), "e/"+strings.ReplaceAll(name, " ", "-"), "", "fs", "", src("payload", c.body)))
			ms, err := s.store.Members(t.Context(), e)
			if c.err != "" {
				wantKind(t, err, fault.Invalid, c.err, e.ID()+" v1")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var order []string
			got := map[string]string{}
			for _, m := range ms {
				order = append(order, m.Name)
				got[m.Name] = body(t, m)
				if m.Size != int64(len(got[m.Name])) {
					t.Errorf("%s has the size %d, not %d", m.Name, m.Size, len(got[m.Name]))
				}
			}
			if diff := cmp.Diff(c.order, order); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// fixedBytes gives every object the same bytes.
type fixedBytes struct {
	object.Store
	body []byte
}

func (f *fixedBytes) Open(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(f.body)), nil
}

func FuzzPayload(f *testing.F) {
	f.Add([]byte(`{"files":[{"path":"a","content":"x"}]}`))
	f.Add([]byte(zipped(f, "root/a", "x", "data.json", `{"files":[{"path":"../x"}]}`)))
	f.Add([]byte("PK\x05\x06"))
	held := &fixedBytes{}
	s := newStage(f, func(o *artifact.Options) {
		held.Store = o.Objects
		o.Objects = held
	})
	e := need[*artifact.Environment](f)(s.store.PutEnvironment(f.Context(), "e", "", "fs", "", src("payload", "{}")))
	f.Fuzz(func(t *testing.T, in []byte) {
		held.body = in
		ms, err := s.store.Members(t.Context(), e)
		if err != nil {
			return
		}
		for _, m := range ms {
			if err := artifact.CheckRelative(m.Name); err != nil {
				t.Fatal(err)
			}
			if r, err := m.Open(context.Background()); err == nil {
				io.Copy(io.Discard, io.LimitReader(r, 1<<20))
				r.Close()
			}
		}
	})
}

const skillText = "---\nname: my-skill\ndescription: Does one thing\nlicense: MIT\nmetadata:\n  a: \"1\"\n---\n\nBody\n"

func TestSkill(t *testing.T) {
	s := newStage(t, nil)
	ctx := t.Context()
	files := []artifact.Source{src("SKILL.md", skillText), src("scripts/run.sh", "#!/bin/sh\n")}
	k := need[*artifact.Skill](t)(s.store.PutSkill(ctx, "team/my-skill", files))
	if k.Version() != 1 || k.SpecVersion != "0.1" || k.FilesID != "team/my-skill__files" || k.License != "MIT" || k.Metadata.Str("a") != "1" {
		t.Errorf("stored %+v", k)
	}
	if got := tree(t, s.store, k); got["SKILL.md"] != skillText || got["scripts/run.sh"] != "#!/bin/sh\n" {
		t.Errorf("files %v", got)
	}
	at := need[*artifact.Skill](t)(s.store.PutSkillAt(ctx, "other/my-skill", k.URL))
	if at.URL != k.URL || at.Name != "my-skill" {
		t.Errorf("over a prefix: %+v", at)
	}
	_, err := s.store.PutSkill(ctx, "other", files)
	wantKind(t, err, fault.Invalid, "must be 'other'")
	_, err = s.store.PutSkill(ctx, "my-skill", files[1:])
	wantKind(t, err, fault.Invalid, "SKILL.md")
}

func TestParseSkillRules(t *testing.T) {
	head := func(lines ...string) string {
		return "---\n" + strings.Join(lines, "\n") + "\n---\n"
	}
	for name, c := range map[string]struct{ text, says string }{
		"byte order mark":     {"\xef\xbb\xbf" + skillText, "begin with"},
		"not closed":          {"---\nname: s\n", "not closed"},
		"no mapping":          {head("- a"), "YAML"},
		"bad yaml":            {head("a: [b"), "YAML"},
		"no name":             {head("description: d"), "no name"},
		"no description":      {head("name: s"), "no description"},
		"upper case":          {head("name: S", "description: d"), "a-z"},
		"double dash":         {head("name: a--b", "description: d"), "a-z"},
		"long description":    {head("name: s", "description: "+strings.Repeat("x", 1025)), "1024"},
		"number as metadata":  {head("name: s", "description: d", "metadata:", "  a: 1"), "metadata.a"},
		"number as license":   {head("name: s", "description: d", "license: 3"), "license"},
		"empty compatibility": {head("name: s", "description: d", `compatibility: ""`), "compatibility"},
		"not UTF-8":           {"---\nname: \xff\n---\n", "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			id := "s"
			if name == "double dash" {
				id = "a--b"
			} else if name == "upper case" {
				id = "S"
			}
			_, _, err := artifact.ParseSkill(id, []byte(c.text))
			wantKind(t, err, fault.Invalid, c.says)
		})
	}
	f, body, err := artifact.ParseSkill("x/s", []byte("---\nname: s\ndescription: d\nallowed-tools: Read\n---  \n\n\nText\n---\n"))
	if err != nil || f.AllowedTools != "Read" || body != "Text\n---\n" {
		t.Errorf("%+v %q %v", f, body, err)
	}
}

func FuzzParseSkill(f *testing.F) {
	f.Add("my-skill", []byte(skillText))
	f.Add("s", []byte("---\n---\n"))
	f.Add("s", []byte("---"))
	f.Fuzz(func(t *testing.T, id string, text []byte) {
		head, _, err := artifact.ParseSkill(id, text)
		if err == nil && (head.Name == "" || !strings.HasSuffix(id, head.Name)) {
			t.Fatalf("accepted %+v for %q", head, id)
		}
	})
}

func TestCLI(t *testing.T) {
	s := newStage(t, nil)
	spec := artifact.CLISpec{Command: "tool", Entrypoint: "bin/tool"}
	c := need[*artifact.CLI](t)(s.store.PutCLI(t.Context(), "c", spec, []artifact.Source{src("bin/tool", "x"), src("lib/a", "y")}))
	if c.FilesID != "c__files" || c.Document().Value("env_id") != nil || len(tree(t, s.store, c)) != 2 {
		t.Errorf("stored %v", c.Document())
	}
	v2 := need[*artifact.CLI](t)(s.store.PutCLI(t.Context(), "c", spec, []artifact.Source{src("bin/tool", "new")}))
	if got := tree(t, s.store, c); got["bin/tool"] != "x" || v2.Version() != 2 {
		t.Errorf("version 1 now gives %v", got)
	}
	for name, c := range map[string]struct {
		spec  artifact.CLISpec
		files []string
		says  string
	}{
		"command":    {artifact.CLISpec{Command: "-x", Entrypoint: "a"}, []string{"a"}, "command_name"},
		"entrypoint": {artifact.CLISpec{Command: "x", Entrypoint: "b"}, []string{"a"}, "none of its files"},
		"env file":   {artifact.CLISpec{Command: "x", Entrypoint: "bin/a"}, []string{"bin/a", "bin/.env"}, ".env"},
		"env folder": {artifact.CLISpec{Command: "x", Entrypoint: "a"}, []string{"a", ".env/b"}, ".env"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(artifact.CheckCLI(c.spec, c.files), "\n"); !strings.Contains(got, c.says) {
				t.Errorf("found %q, want %q", got, c.says)
			}
		})
	}
}
