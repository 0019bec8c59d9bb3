package agents_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/store/doc"
	"agentenv/task"
)

// pupil is an agent that keeps the skills it is given, and refuses those whose name begins with "bad".
type pupil struct {
	mu   sync.Mutex
	held []a2a.Skill
}

func (p *pupil) agent() a2a.Agent {
	return a2a.Agent{Identity: a2a.Identity{Name: "Pupil", Description: "learns", Version: "1"},
		Run: func(context.Context, *a2a.Request) (a2a.Result, error) {
			return a2a.Result{}, errors.New("it only learns")
		},
		Extensions: []a2a.Extension{a2a.SkillConfig(func(_ context.Context, s a2a.Skill) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if strings.HasPrefix(s.Name, "bad") {
				return fault.New(fault.Invalid, "no room for it")
			}
			p.held = append(p.held, s)
			return nil
		}, nil)}}
}

// names returns the names of the skills it holds.
func (p *pupil) names() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, s := range p.held {
		out = append(out, s.Name)
	}
	return strings.Join(out, " ")
}

// text returns the SKILL.md of one of its skills.
func (p *pupil) text(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.held {
		if s.Name == name {
			return s.SkillMD
		}
	}
	return ""
}

// source is a file of an artifact.
func source(name, text string) artifact.Source {
	return artifact.Source{Name: name, Size: int64(len(text)), Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

const (
	pdf    = "---\nname: pdf\ndescription: Read PDF\n---\nOpen it.\n"
	pdfTwo = "---\nname: pdf\ndescription: Read PDF better\n---\nOpen it twice.\n"
)

func learning(t *testing.T, c *crew, p *pupil, metadata *doc.Object) *doc.Object {
	t.Helper()
	at := deployed(t, metadata, map[string]string{"default-agent": serveKit(t, p.agent(), ""), "person": serveKit(t, p.agent(), ""), "blunt": serveKit(t, asker(), "")})
	record(at, "default-agent").Set("instance_id", "pupil-1")
	record(at, "blunt").Set("instance_id", "blunt-1")
	return at
}

func TestAddSkills(t *testing.T) {
	t.Parallel()
	c, p := newCrew(t, nil), &pupil{}
	if _, err := c.artifacts.PutSkill(t.Context(), "team/pdf", []artifact.Source{source("SKILL.md", pdf)}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.artifacts.PutSkill(t.Context(), "team/pdf", []artifact.Source{source("SKILL.md", pdfTwo)}); err != nil {
		t.Fatal(err)
	}
	word, err := c.artifacts.PutSkill(t.Context(), "team/word", []artifact.Source{source("SKILL.md", strings.ReplaceAll(pdf, "pdf", "word"))})
	if err != nil {
		t.Fatal(err)
	}
	metadata := doc.Of("installed_clis", doc.Of("default-agent", doc.Of("team/slack", doc.Of("command_name", "Slack__CLI", "install_path", "/opt/cli/Slack__CLI/bin/slack"))),
		"loaded_file_artifact_universes", []any{doc.Of("id", "team/Data Set", "agent_name", "default-agent", "destination_path", "/old"),
			doc.Of("id", "team/Data Set", "agent_name", "default-agent", "destination_path", "/data"), doc.Of("id", "team/Data Set", "agent_name", "blunt", "destination_path", "/other")})
	at := learning(t, c, p, metadata)
	run, err := c.run(t.Context(), at, `{"id":"k","type":"add_skills","skills":[
		{"name":"full","description":"Says: \"all\" # of it","body":"Do it.\n","license":"MIT","compatibility":"any","metadata":{"a":"1","b c":"x: y"},"allowed_tools":"Bash(git:*) Read"},
		{"name":"short","description":"Little"},
		{"skill_artifact_id":"team/pdf","skill_artifact_version":1},
		{"name":"word","description":"As told","object_url":"`+word.URL+`"}],
		"cli_artifact_ids":["team/slack"],"file_artifact_universe_ids":["team/Data Set"]}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.names(), "full short pdf word slack-cli-cli data-set-40a14336f4c3-files"; got != want {
		t.Errorf("it learned %s, not %s", got, want)
	}
	if got := p.text("full"); got != "---\nname: full\ndescription: \"Says: \\\"all\\\" # of it\"\nlicense: MIT\ncompatibility: any\nmetadata:\n  a: \"1\"\n  b c: \"x: y\"\nallowed-tools: Bash(git:*) Read\n---\n\nDo it.\n" {
		t.Errorf("full is %q", got)
	}
	if p.text("short") != "---\nname: short\ndescription: Little\n---\n\n" || p.text("pdf") != pdf {
		t.Errorf("%q, %q", p.text("short"), p.text("pdf"))
	}
	for name, want := range map[string]string{"slack-cli-cli": "/opt/cli/Slack__CLI/bin/slack --help", "data-set-40a14336f4c3-files": "`/data`"} {
		text := p.text(name)
		if f, _, err := artifact.ParseSkill(name, []byte(text)); err != nil || f.Description == "" || !strings.Contains(text, want) {
			t.Errorf("%s is %q, %v", name, text, err)
		}
	}
	if len(c.notes) != 0 || run.Metadata("agent_skills") != nil {
		t.Errorf("%v", c.notes)
	}
	// A second attempt leaves what is there, and says so; the same name for something else is refused.
	if _, err := c.run(t.Context(), at, `{"id":"k","type":"add_skills","skills":[{"name":"short","description":"Little"},{"name":"more","description":"More"}]}`); err != nil ||
		len(c.notes) != 1 || !strings.Contains(c.notes[0], `"short" already`) || !strings.HasSuffix(p.names(), " more") {
		t.Errorf("again: %v, %v, %s", err, c.notes, p.names())
	}
	if _, err := c.run(t.Context(), at, `{"id":"k","type":"add_skills","skills":[{"name":"short","description":"Other"}]}`); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), `the skill "short"`) {
		t.Errorf("another of that name: %v", err)
	}
}

// TestSkillTextIsYAML writes texts that YAML would read as something else.
func TestSkillTextIsYAML(t *testing.T) {
	t.Parallel()
	c, p := newCrew(t, nil), &pupil{}
	for _, text := range []string{"plain", "a: b", "a #b", "# a", "true", "null", "5", "1.0", "2026-12-01", "~", "- a", "[a]", "{a: b}", "*a", "&a", "!a", "%a", "@a", "`a`", "'a'", `"a"`, `a\nb`, "a\nb: c", "---",
		"|", ">", " a", "a ", "a\ttab", "<a> & b", "é 漢 🙂", "? a", ": a", "a:", "it's"} {
		p.held = nil
		body, err := doc.Marshal(doc.Of("name", "s", "description", text, "license", text, "allowed_tools", text, "metadata", doc.Of("k", text)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.run(t.Context(), learning(t, c, p, nil), `{"id":"k","type":"add_skills","skills":[`+string(body)+`]}`); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		f, _, err := artifact.ParseSkill("s", []byte(p.text("s")))
		if err != nil || f.Description != text || f.License != text || f.AllowedTools != text || f.Metadata["k"] != text {
			t.Errorf("%q comes back as %+v, %v", text, f, err)
		}
	}
}

// TestSkillsAreRefused has an agent learn nothing of a step in which something cannot be learned.
func TestSkillsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step  string
		kind  fault.Kind
		wants []string
	}{
		"no agent":           {`"agent_name":"nobody"`, fault.Invalid, []string{`"nobody"`}},
		"not ours":           {`"agent_name":"person"`, fault.Invalid, []string{`"person"`, "not deployed by this program"}},
		"takes none":         {`"agent_name":"blunt"`, fault.Unsupported, []string{`"blunt"`, "skill-config"}},
		"no such artifact":   {`"skills":[GOOD,{"skill_artifact_id":"nothing"}]`, fault.NotFound, []string{"skills[1]", "nothing"}},
		"another type":       {`"skills":[GOOD,{"skill_artifact_id":"file"}]`, fault.Invalid, []string{"skills[1]", "file"}},
		"more than one file": {`"skills":[GOOD,{"skill_artifact_id":"big"}]`, fault.Unsupported, []string{"big", "2 files", "skill_bundle"}},
		"nothing there":      {`"skills":[GOOD,{"name":"x","description":"d","object_url":"URL/none/"}]`, fault.NotFound, []string{"skills[1]", "SKILL.md"}},
		"another store":      {`"skills":[GOOD,{"name":"x","description":"d","object_url":"s3://b/k/"}]`, fault.Invalid, []string{"s3://b/k/"}},
		"another name":       {`"skills":[GOOD,{"name":"x","description":"d","object_url":"URL/small/"}]`, fault.Invalid, []string{"small", "skills[1]"}},
		"tool not installed": {`"skills":[GOOD],"cli_artifact_ids":["tool"]`, fault.Invalid, []string{"tool", "load_artifact"}},
		"files not loaded":   {`"skills":[GOOD],"file_artifact_universe_ids":["set"]`, fault.Invalid, []string{"set", "load_artifact"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crew, p := newCrew(t, nil), &pupil{}
			small, err := crew.artifacts.PutSkill(t.Context(), "small", []artifact.Source{source("SKILL.md", strings.ReplaceAll(pdf, "pdf", "small"))})
			if err == nil {
				_, err = crew.artifacts.PutSkill(t.Context(), "big", []artifact.Source{source("SKILL.md", strings.ReplaceAll(pdf, "pdf", "big")), source("a.txt", "a")})
			}
			if err == nil {
				_, err = crew.artifacts.PutFile(t.Context(), "file", "", source("f.txt", "f"))
			}
			if err != nil {
				t.Fatal(err)
			}
			at := learning(t, crew, p, doc.Of("installed_clis", doc.Of("other", doc.Of("tool", doc.Of("command_name", "x", "install_path", "/x")))))
			step := strings.ReplaceAll(c.step, `"URL/small/"`, `"`+small.URL+`"`)
			step = strings.ReplaceAll(step, "URL", strings.TrimRight(small.URL, "/"))
			if !strings.Contains(step, "skills") {
				step += `,"skills":[GOOD]`
			}
			step = strings.ReplaceAll(step, "GOOD", `{"name":"good","description":"d","body":"b"}`)
			_, err = crew.run(t.Context(), at, `{"id":"k","type":"add_skills",`+step+`}`)
			if !fault.Is(err, c.kind) {
				t.Fatal(err)
			}
			for _, want := range append(c.wants, `add_skills "k"`) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
			if got := p.names(); got != "" {
				t.Errorf("it learned %s", got)
			}
		})
	}
	crew, p := newCrew(t, nil), &pupil{}
	_, err := crew.run(t.Context(), learning(t, crew, p, nil), `{"id":"k","type":"add_skills","skills":[{"name":"good","description":"d"},{"name":"bad","description":"d"}]}`)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `the skill "bad"`) || !strings.Contains(err.Error(), "no room") || p.names() != "good" {
		t.Errorf("an agent that refuses: %v, %s", err, p.names())
	}
}

// TestSkillOfSeveralFiles goes to the agent as objects, through its own staging store.
func TestSkillOfSeveralFiles(t *testing.T) {
	t.Parallel()
	c, s := newCrew(t, nil), newStateful(t)
	if _, err := c.artifacts.PutSkill(t.Context(), "team/pdf", []artifact.Source{source("SKILL.md", pdf), source("lib/a.txt", "a")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.artifacts.PutSkill(t.Context(), "team/word", []artifact.Source{source("SKILL.md", strings.ReplaceAll(pdf, "pdf", "word"))}); err != nil {
		t.Fatal(err)
	}
	at := s.deployed(t)
	step := `{"id":"k","type":"add_skills","agent_name":"solver","skills":[{"skill_artifact_id":"team/pdf"},{"skill_artifact_id":"team/word"}]}`
	for range 2 {
		if _, err := c.run(t.Context(), at, step); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := s.learned(), "pdf/SKILL.md="+pdf+"|pdf/lib/a.txt=a|word/SKILL.md="+strings.ReplaceAll(pdf, "pdf", "word"); got != want {
		t.Errorf("it learned %q, not %q", got, want)
	}
	if len(c.notes) != 2 {
		t.Errorf("%v", c.notes)
	}
	if _, err := c.run(t.Context(), at, `{"id":"k","type":"add_skills","agent_name":"solver","skills":[{"name":"x","description":"d"}]}`); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "takes no text") {
		t.Errorf("a text for it: %v", err)
	}
}

func TestSkillSteps(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	parse := func(text string) (*task.Task, error) {
		return c.reg.ParseText("t", []byte(`[{"id":"k","type":"add_skills",`+text+`}]`), task.ParseOptions{Strict: true})
	}
	for text, want := range map[string]string{
		`"skills":["x"]`:          "skills",
		`"skills":[{"name":"x"}]`: "name and description",
		`"skills":[{"name":"x","description":"d","text":"b"}]`:                  `no field "text"`,
		`"skills":[{"name":"x","description":5}]`:                               "description",
		`"skills":[{"name":"x","description":"d","object_url":"u","body":"b"}]`: "body",
		`"skills":[{"skill_artifact_id":"a","license":"MIT"}]`:                  "license",
		`"skills":[{"skill_artifact_id":"a","object_url":"u"}]`:                 "exclude",
		`"skills":[{"skill_artifact_id":"a","skill_artifact_version":0}]`:       "skill_artifact_version",
		`"skills":[{"name":"x","description":"d","metadata":{"a":1}}]`:          "metadata.a",
		`"skills":[{"name":"x","description":"d"},{"name":"y"}]`:                "skills[1]",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		`"skills":[]`: "nothing to add",
		`"skills":[{"name":"Not A Name","description":"d"}]`:         "skills[0]",
		`"skills":[{"name":"<name>","description":"of the <seed>"}]`: "",
		`"cli_artifact_ids":["a"]`:                                   "",
	} {
		tk, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		s := tk.Steps[0]
		if got := strings.Join(s.Kind.Check(s), "; "); !strings.Contains(got, want) || got != "" && want == "" {
			t.Errorf("%s: %q", text, got)
		}
	}
	s := c.step(`{"id":"k","type":"add_skills","skills":[{"description":"d","name":"x","object_url":"u","body":null},{"skill_artifact_version":2,"skill_artifact_id":"a"}]}`)
	want := `{"skills": [{"name": "x", "description": "d", "s3_url": "u", "object_url": "u"}, {"skill_artifact_id": "a", "skill_artifact_version": 2}], "cli_artifact_ids": [], "file_artifact_universe_ids": [], "agent_name": "default-agent"}`
	if got, err := doc.Marshal(s.Fields); err != nil || string(got) != want {
		t.Errorf("stored %s, %v", got, err)
	}
}
