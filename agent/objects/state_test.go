package objects_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/agent/objects"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/card"
	"agentenv/protocol/transfer"
)

// moving are the ways on which objects can go at all.
var moving = []way{byGrant, byStaging, byLoopback}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	for _, w := range moving {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, w, a2a.Settings{})
			r.agent.states["c"] = "c"
			to := objects.Snapshot{Trajectory: r.put("s/trajectory", "older"), Workspace: r.url("s/workspace")}
			saved, err := r.mover.SaveSnapshot(t.Context(), r.e, "c", to)
			must(t, err)
			if saved.Trajectory.Size != 9 || saved.Workspace == nil || r.get(to.Trajectory) != "talk of c" || r.get(to.Workspace) != "work of c" {
				t.Error(saved, r.get(to.Trajectory), r.get(to.Workspace))
			}
			id, err := r.mover.LoadSnapshot(t.Context(), r.e, to, "d")
			if err != nil || id != "d" || r.agent.states["d"] != "talk of c, work of c" {
				t.Error(id, err, r.agent.states)
			}
			to.Workspace = ""
			if id, err = r.mover.LoadSnapshot(t.Context(), r.e, to, ""); err != nil || id != "fresh" || r.agent.states["fresh"] != "talk of c" {
				t.Error(id, err, r.agent.states)
			}
			if saved, err = r.mover.SaveSnapshot(t.Context(), r.e, "c", to); err != nil || saved.Workspace != nil {
				t.Error(saved, err)
			}
			_, err = r.mover.SaveSnapshot(t.Context(), r.e, "nope", to)
			fails(t, err, fault.NotFound, "404")
			_, err = r.mover.LoadSnapshot(t.Context(), r.e, objects.Snapshot{Trajectory: r.url("none")}, "")
			fails(t, err, fault.NotFound, "there is no object")
			if left := r.staged(); len(left) > 0 {
				t.Error("left on the agent:", left)
			}
		})
	}
}

// TestRefusals says why objects cannot move, with nothing sent.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		w    way
		bare bool
		says string
	}{
		{nowhere, false, "issues no grants"},
		{unreached, false, "do not reach sandboxes of the provider here"},
		{byGrant, true, "does not advertise"},
	} {
		r := newRig(t, c.w, a2a.Settings{})
		if c.bare {
			r.e.Card = card.Of(map[string]any{})
		}
		url := r.put("000001", "x")
		folder := strings.TrimSuffix(url, "/000001")
		_, err := r.mover.SaveSnapshot(t.Context(), r.e, "c", objects.Snapshot{Trajectory: url})
		fails(t, err, fault.Unsupported, c.says)
		_, err = r.mover.LoadSnapshot(t.Context(), r.e, objects.Snapshot{Trajectory: url}, "")
		fails(t, err, fault.Unsupported, c.says)
		_, err = r.mover.EnableChangelog(t.Context(), r.e, objects.Recording{ObjectURL: folder, Lifetime: time.Hour})
		fails(t, err, fault.Unsupported, c.says)
		fails(t, r.mover.CanLoadSnapshot(r.e, objects.Snapshot{Trajectory: url}, "c"), fault.Unsupported, c.says)
		fails(t, r.mover.CanEnableChangelog(r.e, objects.Recording{ObjectURL: folder}), fault.Unsupported, c.says)
		fails(t, r.mover.CanApplyChangelog(r.e, objects.Replay{ObjectURL: folder, Resume: true}), fault.Unsupported, c.says)
		_, err = r.mover.ApplyChangelog(t.Context(), r.e, objects.Replay{ObjectURL: folder})
		fails(t, err, fault.Unsupported, c.says)
		err = r.mover.AddSkillBundle(t.Context(), r.e, objects.Skill{Name: "s", Files: []objects.SkillFile{{Path: "SKILL.md", URL: url}}})
		fails(t, err, fault.Unsupported, c.says)
		if asked := r.asked(""); len(asked) > 0 {
			t.Error(asked)
		}
	}
	r := newRig(t, unreached, a2a.Settings{})
	r.e.SandboxType = ""
	_, err := r.mover.SaveSnapshot(t.Context(), r.e, "c", objects.Snapshot{Trajectory: r.url("x")})
	fails(t, err, fault.Unsupported, "outside of our sandboxes")
}

func TestSkills(t *testing.T) {
	t.Parallel()
	for _, w := range moving {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, w, a2a.Settings{})
			root, empty := r.put("k/SKILL.md", "# how"), r.put("k/empty", "")
			s := objects.Skill{Name: "s", Description: "d", Files: []objects.SkillFile{{"SKILL.md", root}, {"empty", empty}}}
			must(t, r.mover.AddSkillBundle(t.Context(), r.e, s))
			if !slices.Equal(r.agent.skills, []string{"s/SKILL.md=# how", "s/empty="}) {
				t.Error(r.agent.skills)
			}
			if asked := r.asked("POST /ext/skill-config")[0]; !strings.Contains(asked, `"max_total_bytes":6`) || !strings.Contains(asked, `"size_bytes":0`) {
				t.Error(asked)
			}
			fails(t, r.mover.AddSkillBundle(t.Context(), r.e, s), fault.Conflict, "409")
			s.Name, s.Files = "gone", append(s.Files, objects.SkillFile{"gone", r.url("k/gone")})
			fails(t, r.mover.AddSkillBundle(t.Context(), r.e, s), fault.NotFound, "there is no object")
			if left := r.staged(); len(left) > 0 {
				t.Error("left on the agent:", left)
			}
		})
	}
	r := newRig(t, byGrant, a2a.Settings{})
	url := r.put("SKILL.md", "x")
	many := make([]objects.SkillFile, 1001)
	for i := range many {
		many[i] = objects.SkillFile{fmt.Sprint(i), url}
	}
	root := objects.SkillFile{"SKILL.md", url}
	for says, files := range map[string][]objects.SkillFile{"1001 files": many, "no file SKILL.md": {{"x", url}}, "two files": {root, root},
		"no plain relative path": {root, {"../x", url}}} {
		fails(t, r.mover.AddSkillBundle(t.Context(), r.e, objects.Skill{Name: "s", Files: files}), fault.Invalid, says)
	}
	if asked := r.asked(""); len(asked) > 0 {
		t.Error(asked)
	}
}

// secretFolder is a name that nobody guesses.
const secretFolder = "0123456789abcdef0123456789abcdef"

func TestChangelogs(t *testing.T) {
	t.Parallel()
	for _, w := range moving {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, w, a2a.Settings{})
			folder := r.url("logs/agent")
			c, err := r.mover.EnableChangelog(t.Context(), r.e, objects.Recording{ObjectURL: folder + "/", Roots: []string{"/work"}, Lifetime: time.Hour, StagingFolder: secretFolder})
			must(t, err)
			if c.StagingURL != r.mover.StagingURL(r.e, secretFolder) {
				t.Errorf("%+v", c)
			}
			if c.ObjectURL != folder || !slices.Equal(c.Roots, []string{"/work"}) || (c.StagingURL != "") != (w != byGrant) {
				t.Errorf("%+v", c)
			}
			ctx := transfer.WithPort(t.Context(), r.port)
			write := func(name, content string) { must(t, r.agent.log.Put(ctx, name, transfer.Bytes([]byte(content)))) }
			write("000001.tgz", "one")
			write("000002.tgz", "two")
			drain := func(want int) {
				t.Helper()
				n, err := r.mover.Drain(t.Context(), r.e, c)
				if w == byGrant {
					want = 0
				}
				if err != nil || n != want || len(r.staged()) > 0 {
					t.Error(n, err, r.staged())
				}
			}
			drain(2)
			write("000002.tgz", "two again")
			write("000010.tgz", "")
			over := make(chan struct{})
			close(over)
			ended, stop := context.WithCancel(t.Context())
			stop()
			r.mover.KeepDrained(ended, r.e, c, nil)
			if left := len(r.staged()); left != 2 && w != byGrant {
				t.Error("an ended context drains: left are", left)
			}
			r.mover.KeepDrained(t.Context(), r.e, c, over)
			drain(0)
			for _, want := range []string{"one", "two again", ""} {
				name := map[string]string{"one": "1", "two again": "2", "": "10"}[want]
				if got := r.get(folder + "/" + strings.Repeat("0", 6-len(name)) + name + ".tgz"); got != want {
					t.Errorf("%q, not %q", got, want)
				}
			}
			before := int64(10)
			got, err := r.mover.ApplyChangelog(t.Context(), r.e, objects.Replay{ObjectURL: folder, Before: &before, Resume: true, TargetContextID: "c"})
			if err != nil || got != (objects.Applied{Count: 2, ContextID: "c"}) || !slices.Equal(r.agent.made, []string{"1:one", "2:two again"}) {
				t.Error(got, err, r.agent.made)
			}
			if got, err = r.mover.ApplyChangelog(t.Context(), r.e, objects.Replay{ObjectURL: folder}); err != nil || got != (objects.Applied{Count: 3}) {
				t.Error(got, err)
			}
			before, r.agent.made = 0, nil
			if got, err = r.mover.ApplyChangelog(t.Context(), r.e, objects.Replay{ObjectURL: folder, Before: &before}); err != nil || got.Count != 0 || r.agent.made != nil {
				t.Error(got, err, r.agent.made)
			}
			if asked := r.asked("PUT /ext/snapshot/changelog"); !strings.Contains(asked[len(asked)-1], `"increments":[]`) {
				t.Error("what comes before all increments was not sent:", asked[len(asked)-1])
			}
			if list, err := r.mover.ListChangelog(t.Context(), objects.Replay{ObjectURL: folder}); err != nil || len(list) != 3 || list[2].Sequence != 10 {
				t.Error(list, err)
			}
			if done, err := r.mover.ApplyChangelog(t.Context(), r.e, objects.Replay{ObjectURL: r.url("logs/none")}); err != nil || done.Count != 0 {
				t.Error("a changelog into which nothing was written:", done, err)
			}
			r.put("logs/agent/readme.txt", "x")
			_, err = r.mover.ApplyChangelog(t.Context(), r.e, objects.Replay{ObjectURL: folder})
			fails(t, err, fault.Invalid, "readme.txt")
		})
	}
}

func TestAppliedCount(t *testing.T) {
	t.Parallel()
	r := newRig(t, byGrant, a2a.Settings{})
	r.put("l/000001", "x")
	for _, answer := range []string{`{}`, `{"count":0}`, `{"count":2}`, `{"count":"1"}`} {
		e := scripted(t, r.e, func(w http.ResponseWriter, _ string) { fmt.Fprint(w, answer) })
		_, err := r.mover.ApplyChangelog(t.Context(), e, objects.Replay{ObjectURL: r.url("l")})
		fails(t, err, fault.Unavailable, "was sent 1 increments")
	}
}

func TestIncrements(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		names, want, says string
	}{
		{"", "", ""},
		{"000010.tgz 000002 000003.tar.gz", "2 3 10", ""},
		{"00001", "", "no name"},
		{"0000001", "", "no name"},
		{"000001.", "", "no name"},
		{"000001..x", "", "no name"},
		{"a/000001", "", "no name"},
		{"000001.tgz 000001.tar", "", "same number"},
	} {
		got, err := objects.Increments(strings.Fields(c.names))
		if c.says != "" {
			fails(t, err, fault.Invalid, c.says)
			continue
		}
		var numbers []string
		for _, i := range got {
			numbers = append(numbers, fmt.Sprint(i.Sequence))
		}
		if err != nil || strings.Join(numbers, " ") != c.want {
			t.Error(c.names, got, err)
		}
	}
}

// TestDrainedTwice has two drains move one changelog at once: each object is moved, and neither stumbles over the other.
func TestDrainedTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, byLoopback, a2a.Settings{})
	c, err := r.mover.EnableChangelog(t.Context(), r.e, objects.Recording{ObjectURL: r.url("log"), Lifetime: time.Hour})
	must(t, err)
	ctx := transfer.WithPort(t.Context(), r.port)
	for i := range 20 {
		must(t, r.agent.log.Put(ctx, fmt.Sprintf("%06d.tgz", i), transfer.Bytes([]byte("x"))))
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if _, err := r.mover.Drain(t.Context(), r.e, c); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if all, err := r.mover.ListChangelog(t.Context(), objects.Replay{ObjectURL: r.url("log")}); err != nil || len(all) != 20 || len(r.staged()) > 0 {
		t.Error(len(all), err, r.staged())
	}
}

// TestDrainsOnlyItsOwn refuses a folder that is not in the staging store of the agent, whoever recorded it.
func TestDrainsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, byLoopback, a2a.Settings{})
	for _, at := range []string{"http://127.0.0.1:1/ext/staging/" + secretFolder, r.e.URL + "/ext/agent-config", r.e.URL + ".example.org/ext/staging/x"} {
		_, err := r.mover.Drain(t.Context(), r.e, objects.Changelog{StagingURL: at, ObjectURL: r.url("log")})
		fails(t, err, fault.Invalid, "was not staged on")
	}
	if asked := r.asked(""); len(asked) > 0 {
		t.Error(asked)
	}
	r.mover.LastDrain(t.Context(), r.e, objects.Changelog{StagingURL: "http://127.0.0.1:1/x", ObjectURL: r.url("log")})
	if !strings.Contains(r.said.String(), "could not be brought into the store") {
		t.Errorf("it logs %q", r.said.String())
	}
	if url := r.mover.StagingURL(agent.Endpoint{URL: "http://10.0.0.1", Card: card.Of(map[string]any{})}, secretFolder); url != "" {
		t.Error("staged where nothing is:", url)
	}
}

// TestSkillsOfTheStore reads a skill and hands it over in the form that the agent takes.
func TestSkillsOfTheStore(t *testing.T) {
	t.Parallel()
	r := newRig(t, byGrant, a2a.Settings{})
	text := r.put("one/SKILL.md", "# one")
	one, err := r.mover.ReadSkill(t.Context(), strings.TrimSuffix(text, "SKILL.md"))
	if err != nil || one.Text != "# one" || len(one.Files) != 1 {
		t.Error(one, err)
	}
	one.Name, one.Description = "one", "d"
	must(t, r.mover.AddSkill(t.Context(), r.e, one))
	r.put("two/SKILL.md", "# two")
	r.put("two/more", "more")
	two, err := r.mover.ReadSkill(t.Context(), r.url("two"))
	must(t, err)
	two.Name, two.Description = "two", "d"
	must(t, r.mover.CanAddSkill(r.e, two))
	must(t, r.mover.AddSkill(t.Context(), r.e, two))
	if !slices.Equal(r.agent.skills, []string{"one/SKILL.md=# one", "two/SKILL.md=# two", "two/more=more"}) {
		t.Error(r.agent.skills)
	}
	r.put("bare/x", "x")
	r.put("large/SKILL.md", strings.Repeat("x", 4<<20+1))
	for url, want := range map[string]fault.Kind{r.url("bare"): fault.NotFound, r.url("none"): fault.NotFound, r.url("large"): fault.Invalid, "s3://elsewhere/x": fault.Invalid} {
		if _, err := r.mover.ReadSkill(t.Context(), url); !fault.Is(err, want) {
			t.Error(url, err)
		}
	}
	r.e.Card = card.Of(map[string]any{})
	fails(t, r.mover.CanAddSkill(r.e, two), fault.Unsupported, "its card offers no skill-config")
	fails(t, r.mover.CanAddSkill(r.e, objects.Skill{Name: "s", Text: "x"}), fault.Unsupported, "its card offers no skill-config")
}
