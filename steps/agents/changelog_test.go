package agents_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv/agent/deploy"
	"agentenv/agent/objects"
	"agentenv/store/doc"
)

// changelog returns the increments in the store below a URL as name=text.
func (c *crew) changelog(url string) string {
	c.t.Helper()
	found, err := c.objects.ListAt(c.t.Context(), strings.TrimRight(url, "/")+"/")
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, u := range found {
		body, err := c.objects.Open(c.t.Context(), u)
		if err != nil {
			c.t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		body.Close()
		if err != nil {
			c.t.Fatal(err)
		}
		out = append(out, filepath.Base(u)+"="+string(text))
	}
	return strings.Join(out, " ")
}

// staged returns how many files lie in a keeper's staging store.
func (k *keeper) staged() (n int) {
	_ = filepath.WalkDir(k.folder, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return nil
	})
	return n
}

// TestChangelog has an agent record what it changes, and another one make it again.
func TestChangelog(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	ks := newKeepers(t, c)
	at := c.deployKeeper(nil, "a/b", `,"enable_agent_changelog":true`)
	row, _ := at.Obj("metadata").Arr("agent_changelog")[0].(*doc.Object)
	url := row.Str("object_url")
	if most, staged := row.Int("staging_max_object_bytes"); row.Str("agent_name") != "a/b" || canon(row.Value("roots")) != `["/work"]` || row.Str("transfer_mode") != "objects" ||
		!strings.Contains(url, "/team/agent_changelog/inst-1/a_b-") || !staged || most != 1<<30 || row.Len() != 5 {
		t.Errorf("recorded %s", canon(row))
	}
	sandbox := record(at, "a/b").Str("sandbox_id")
	folder, err := c.deps.Deployer.StagingFolder(sandbox)
	if err != nil || len(folder) != 32 {
		t.Fatal(folder, err)
	}
	if token, err := c.tokens.For(sandbox); err != nil || strings.HasPrefix(token, folder) {
		t.Error("it is the token's beginning")
	}
	for _, text := range []string{"one", "two", "three"} {
		_, at = c.ask(at, "a/b", "talk", text)
	}
	if got := c.changelog(url); got != "000001.txt=one 000002.txt=two 000003.txt=three" || ks.nth(0).staged() != 0 {
		t.Errorf("in the store is %s, on the agent are %d", got, ks.nth(0).staged())
	}
	if strings.Contains(canon(at), folder) {
		t.Error("where it is staged is on record")
	}
	for name, bad := range map[string]string{"of another agent": "other", "of no sandbox": ""} {
		if other, err := c.deps.Deployer.StagingFolder(bad); err != nil || other == folder {
			t.Error(name, err)
		}
	}

	for _, replay := range []struct{ cutoff, answer, before string }{{"", "I heard one, two, three, now", "null"}, {"3", "I heard one, two, now", "3"}, {"0", "I heard now", "0"}, {"99", "I heard one, two, three, now", "99"}} {
		more := `,"agent_changelog_object_url":"` + url + `","agent_snapshot_target_context_id":"again"`
		if replay.cutoff != "" {
			more += `,"agent_changelog_toolcall_position_exclusive":` + replay.cutoff
		}
		run := c.deployKeeper(nil, "next", more)
		if got := canon(run.Obj("metadata").Arr("agent_changelog_rewinds")); got != `[{"agent_name":"next","context_id":"again","object_url":"`+url+`","transfer_mode":"objects","up_to_tool_call_exclusive":`+replay.before+`}]` {
			t.Errorf("recorded %s", got)
		}
		if answer, _ := c.ask(run, "next", "again", "now"); answer != replay.answer {
			t.Errorf("up to %q it goes on with %q", replay.cutoff, answer)
		}
	}
	// What another attempt recorded is not mixed with it.
	again, _ := c.deployKeeper(nil, "a/b", `,"enable_agent_changelog":true`).Obj("metadata").Arr("agent_changelog")[0].(*doc.Object)
	if other := again.Str("object_url"); other == url || !strings.Contains(other, "/inst-1/a_b-") {
		t.Errorf("the second one is at %s", other)
	}
}

// TestChangelogIsSaved brings what an agent wrote after its last prompt into the store before it ends, also from another process and by what
// another program recorded.
func TestChangelogIsSaved(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nil)
	ks := newKeepers(t, c)
	at := c.deployKeeper(nil, "solver", `,"enable_agent_changelog":true`)
	_, at = c.ask(at, "solver", "talk", "one")
	url := at.Obj("metadata").Arr("agent_changelog")[0].(*doc.Object).Str("object_url")
	sandbox := record(at, "solver").Str("sandbox_id")
	k := ks.nth(0)

	k.note(t, "two")
	c.deps.Drain(t.Context(), at, "another-sandbox")
	if k.staged() != 1 {
		t.Error("it drains an agent elsewhere")
	}
	elsewhere := c.deps
	elsewhere.Mover = objects.New(objects.Options{Client: c.deps.Client, Store: c.objects, Near: func(string) bool { return true }})
	defer elsewhere.Mover.Close()
	elsewhere.Deployer = deploy.New(deploy.Options{Sandboxes: c.sandboxes, Instances: c.instances, Client: c.deps.Client, Tokens: c.tokens})
	elsewhere.Drain(t.Context(), at, sandbox)
	if got := c.changelog(url); got != "000001.txt=one 000002.txt=two" || k.staged() != 0 {
		t.Errorf("in the store is %s, on the agent are %d", got, k.staged())
	}

	const folder = "/ext/staging/abcdefghijklmnopqrstuvwxyz012345"
	e, err := c.deps.Deployer.Endpoint(record(at, "solver"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := c.deps.Mover.EnableChangelog(t.Context(), e, objects.Recording{ObjectURL: url + "-theirs", Lifetime: 1 << 40, StagingFolder: filepath.Base(folder)})
	if err != nil {
		t.Fatal(err)
	}
	at.Obj("metadata").Set("agent_changelog", []any{doc.Of("agent_name", "solver", "roots", []any{}, "transfer_mode", "objects", "object_url", theirs.ObjectURL,
		"staging_url", record(at, "solver").Str("a2a_url")+folder, "staging_max_object_bytes", doc.Int(1<<30))})
	k.note(t, "three")
	k.note(t, "four")
	if _, at = c.ask(at, "solver", "talk", "five"); c.changelog(theirs.ObjectURL) != "000003.txt=three 000004.txt=four 000005.txt=five" || k.staged() != 0 {
		t.Errorf("in the store is %s, on the agent are %d", c.changelog(theirs.ObjectURL), k.staged())
	}

	// What cannot be brought into the store fails nothing.
	c.provider.Kill(sandbox)
	ended, stop := context.WithCancel(t.Context())
	stop()
	c.deps.Drain(ended, at, sandbox)
	c.deps.Drain(t.Context(), at, sandbox)
}
