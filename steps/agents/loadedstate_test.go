package agents_test

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/store/object"
	"agentenv/task"
)

// TestBeginFromASnapshot goes on with an agent's conversation in another agent.
func TestBeginFromASnapshot(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	ks := newKeepers(t, c)
	at := c.deployKeeper(nil, "first", "")
	c.ask(at, "first", "talk", "one")
	answer, at := c.ask(at, "first", "talk", "two")
	if answer != "I heard one, two" {
		t.Fatal(answer)
	}
	run, err := c.run(t.Context(), at, `{"id":"keep","type":"snapshot_agent_state","agent_name":"first","prompt_id":"two","artifact_id":"kept"}`)
	if err != nil {
		t.Fatal(err)
	}
	c.ask(run.Context(), "first", "talk", "three")
	at = c.deployKeeper(run.Context(), "second", `,"agent_snapshot_files_artifact_id":"kept","agent_snapshot_target_context_id":"again"`)
	if answer, at = c.ask(at, "second", "again", "four"); answer != "I heard one, two, four" {
		t.Errorf("it goes on with %q", answer)
	}
	at = c.deployKeeper(at, "third", `,"agent_snapshot_files_artifact_id":"kept","agent_snapshot_files_artifact_version":1`)
	if answer, at = c.ask(at, "third", "of-its-own", "five"); answer != "I heard one, two, five" {
		t.Errorf("it goes on with %q", answer)
	}
	if got := canon(at.Obj("metadata").Arr("agent_loaded_snapshots")); got != `[{"agent_name":"second","context_id":"again","source_artifact_id":"kept","source_artifact_version":1},`+
		`{"agent_name":"third","context_id":"of-its-own","source_artifact_id":"kept","source_artifact_version":1}]` {
		t.Errorf("recorded %s", got)
	}
	if len(c.notes) > 0 || at.Obj("metadata").Value("agent_changelog") != nil || at.Obj("metadata").Value("agent_changelog_rewinds") != nil {
		t.Errorf("%v, %s", c.notes, canon(at.Obj("metadata")))
	}
	if asked := strings.Join(ks.nth(1).asked, ", "); asked != "POST /ext/agent-config, PUT /ext/snapshot, POST /ext/agent-config" { // the last one is of the prompt
		t.Errorf("it was asked %s", asked)
	}
	c.deployKeeper(at, "fourth", `,"agent_snapshot_target_context_id":"again"`)
	if len(c.notes) != 1 || !strings.Contains(c.notes[0], "names none") {
		t.Errorf("a target for nothing: %v", c.notes)
	}
}

// put stores an object and returns its URL.
func (c *crew) putObject(key, text string) string {
	c.t.Helper()
	w, err := c.objects.Put(c.t.Context(), object.Item{Key: key, Size: int64(len(text)), Body: strings.NewReader(text)}, true)
	if err != nil {
		c.t.Fatal(err)
	}
	return w.URL
}

// TestNoBeginning has each beginning that fails leave no sandbox and no record, and what is known before make none at all.
func TestNoBeginning(t *testing.T) {
	t.Parallel()
	snapshot := `,"agent_snapshot_files_artifact_id":"kept"`
	for name, c := range map[string]struct {
		agent, step string
		change      func(t *testing.T, c *crew, ks *keepers)
		kind        fault.Kind
		wants       string
		deployed    bool // a sandbox was made
		asked       bool // the agent was asked something
	}{
		"no such artifact":         {step: `,"agent_snapshot_files_artifact_id":"none"`, kind: fault.NotFound, wants: "none"},
		"no such version":          {step: snapshot + `,"agent_snapshot_files_artifact_version":7`, kind: fault.NotFound, wants: "kept"},
		"another type":             {step: `,"agent_snapshot_files_artifact_id":"file"`, kind: fault.Invalid, wants: "file"},
		"files of something else":  {step: `,"agent_snapshot_files_artifact_id":"files"`, kind: fault.Invalid, wants: "not a portable snapshot"},
		"a changelog elsewhere":    {step: `,"agent_changelog_object_url":"s3://elsewhere/log"`, kind: fault.Invalid, wants: "s3://elsewhere/log"},
		"names of another program": {step: `,"agent_changelog_object_url":"URL/odd"`, kind: fault.Invalid, wants: `"step-1.tgz" is no name of an increment`},
		"a name that is no key":    {agent: "..", step: `,"enable_agent_changelog":true`, kind: fault.Invalid, wants: ".."},
		"an agent without state":   {step: `,"a2a_agent_id":"plain"` + snapshot, kind: fault.Unsupported, wants: "cannot begin from a snapshot", deployed: true},
		"an agent that replays nothing": {step: `,"agent_changelog_object_url":"URL/log"`, change: func(_ *testing.T, _ *crew, ks *keepers) { ks.bare = true }, kind: fault.Unsupported,
			wants: "cannot replay a changelog", deployed: true},
		"an agent that records nothing": {step: `,"enable_agent_changelog":true`, change: func(_ *testing.T, _ *crew, ks *keepers) { ks.bare = true }, kind: fault.Unsupported,
			wants: "cannot record what it changes", deployed: true},
		"an agent that refuses": {step: snapshot, change: func(_ *testing.T, _ *crew, ks *keepers) {
			ks.load = func(*keeper) error { return fault.New(fault.Conflict, "a turn is running") }
		}, kind: fault.Internal, wants: "load the snapshot kept v1", deployed: true, asked: true},
		"an agent that cannot replay it": {step: snapshot + `,"enable_agent_changelog":true,"agent_changelog_object_url":"URL/log"`, change: func(_ *testing.T, _ *crew, ks *keepers) {
			ks.apply = func(a2a.Changelog) error { return errors.New("broken") }
		}, kind: fault.Internal, wants: "replay the changelog", deployed: true, asked: true},
		"an agent that dies": {step: snapshot, change: func(_ *testing.T, c *crew, ks *keepers) {
			ks.load = func(*keeper) error {
				for _, id := range c.provider.Live() {
					c.provider.Kill(id)
				}
				return nil
			}
		}, kind: fault.Internal, wants: "load the snapshot kept v1", deployed: true, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crew := newCrew(t, nil)
			ks := newKeepers(t, crew)
			crew.keepSome()
			if c.change != nil {
				c.change(t, crew, ks)
			}
			url, err := crew.objects.URL("logs")
			if err != nil {
				t.Fatal(err)
			}
			if c.agent == "" {
				c.agent = "solver"
			}
			step := strings.ReplaceAll(keeperStep(c.agent, c.step), "URL", url)
			if strings.Contains(c.step, "a2a_agent_id") {
				step = strings.Replace(step, `"a2a_agent_id":"keeper",`, "", 1)
				crew.servePlain(t)
			}
			run, err := crew.run(t.Context(), nil, step)
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.wants) {
				t.Errorf("%v (%s)", err, fault.KindOf(err))
			}
			if live := crew.provider.Live(); len(live) != 0 || len(crew.provider.Specs()) > 0 != c.deployed || len(run.Agents()) != 0 {
				t.Errorf("live %v, %d made, recorded %s", live, len(crew.provider.Specs()), canon(run.Agents()))
			}
			for _, list := range []string{"agent_loaded_snapshots", "agent_changelog_rewinds", "agent_changelog"} {
				if run.Metadata(list) != nil {
					t.Errorf("%s says %s", list, canon(run.Metadata(list)))
				}
			}
			if len(ks.all) > 0 && len(ks.nth(0).asked) > 0 != c.asked {
				t.Errorf("it was asked %s", ks.nth(0).asked)
			}
		})
	}
}

// keepSome stores a snapshot, other artifacts, and changelogs.
func (c *crew) keepSome() {
	c.t.Helper()
	_, err := c.artifacts.PutUniverse(c.t.Context(), "kept", []artifact.Source{source("trajectory", `["one"]`), source("workspace", "work")})
	if err == nil {
		_, err = c.artifacts.PutUniverse(c.t.Context(), "files", []artifact.Source{source("a.txt", "a"), source("b/trajectory", "b")})
	}
	if err == nil {
		_, err = c.artifacts.PutFile(c.t.Context(), "file", "", source("trajectory", "f"))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	for key, text := range map[string]string{"log/000000.txt": "zero", "log/000001.txt": "one", "log/000007.txt": "seven", "odd/step-1.tgz": "x"} {
		c.putObject("logs/"+key, text)
	}
}

// servePlain puts an agent that keeps nothing in place of the keepers.
func (c *crew) servePlain(t *testing.T) {
	f := &fake{takes: "name,role", answer: echoing}
	delete(c.images, "agentenv.a2a.auth")
	c.put("plain", nil)
	c.provider.Serve = handler(f, t)
}

// TestObjectsOfASnapshotAreGone names what is missing before a sandbox is made.
func TestObjectsOfASnapshotAreGone(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	newKeepers(t, c)
	url, err := c.objects.URL("gone/")
	if err != nil {
		t.Fatal(err)
	}
	c.putObject("gone/trajectory", "[]")
	if _, err := c.artifacts.PutExisting(t.Context(), "gone", url); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(strings.TrimPrefix(url, "file://") + "trajectory"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.run(t.Context(), nil, keeperStep("solver", `,"agent_snapshot_files_artifact_id":"gone"`)); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), `"trajectory"`) || len(c.provider.Specs()) > 0 {
		t.Error(err)
	}
}

// TestSkillsOfTheStore gives an agent skills from the object store as it is deployed: a text where that is all, else all files.
func TestSkillsOfTheStore(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	ks := newKeepers(t, c)
	ks.skills = true
	one, err := c.artifacts.PutSkill(t.Context(), "pdf", []artifact.Source{source("SKILL.md", pdf)})
	if err != nil {
		t.Fatal(err)
	}
	word := strings.ReplaceAll(pdf, "pdf", "word")
	two, err := c.artifacts.PutSkill(t.Context(), "word", []artifact.Source{source("SKILL.md", word), source("more/a.txt", "abc")})
	if err != nil {
		t.Fatal(err)
	}
	c.deployKeeper(nil, "solver", `,"skills":[{"name":"inline","description":"d","skill_md":"# as it is"},{"name":"pdf","description":"d","object_url":"`+one.URL+`"},{"s3_uri":"`+two.URL+`"},{"name":"renamed","description":"d","object_url":"`+one.URL+`"}]`)
	want := []string{"inline: # as it is", "pdf: " + pdf, "word: SKILL.md " + strconv.Itoa(len(word)) + ", more/a.txt 3", "renamed: " + pdf}
	if got := ks.nth(0).learnt; !slices.Equal(got, want) {
		t.Errorf("it learnt %q", got)
	}
	for name, bad := range map[string]struct {
		skill string
		kind  fault.Kind
		wants string
	}{
		"not there":     {`{"name":"x","object_url":"` + one.URL + `/none"}`, fault.NotFound, "skills[1]"},
		"another store": {`{"name":"x","skill_s3_url":"s3://elsewhere/x"}`, fault.Invalid, "s3://elsewhere/x"},
	} {
		before := len(c.provider.Specs())
		_, err := c.run(t.Context(), nil, keeperStep("solver", `,"skills":[{"name":"inline","skill_md":"# x"},`+bad.skill+`]`))
		if !fault.Is(err, bad.kind) || !strings.Contains(err.Error(), bad.wants) || len(c.provider.Specs()) != before {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An agent that takes only texts is told nothing of a step with a skill that is more than a text.
	f := &fake{takes: "name", more: []string{"skills"}, answer: echoing}
	delete(c.images, "agentenv.a2a.auth")
	c.provider.Serve = handler(f, t)
	live := len(c.provider.Live())
	_, err = c.run(t.Context(), task.NewContext(), keeperStep("solver", `,"skills":[{"name":"inline","skill_md":"# x"},{"name":"word","object_url":"`+two.URL+`"}]`))
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), `"word"`) || !strings.Contains(err.Error(), "skill_bundle") || len(f.got("/ext/skill-config"))+len(f.got("/ext/agent-config")) > 0 || len(c.provider.Live()) != live {
		t.Errorf("%v", err)
	}
}
