package a2a_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/transfer"
)

// staged is a path of the staging store that nobody guesses.
const staged = "/ext/staging/0123456789012345678901/"

// grant is a grant for a staged object, which the agent uses over loopback: no other way leads to the host it names.
func grant(kind, name string) string {
	return fmt.Sprintf(`{"kind":%q,"url":"https://agent.invalid%s%s","expires_at":%q,"headers":{"AgentEnv-Staging-Path":"%s%s"}}`,
		kind, staged, name, time.Now().Add(time.Hour).UTC().Format(time.RFC3339), staged, name)
}

func write(name, media string) string {
	return fmt.Sprintf(`{"media_type":%q,"max_bytes":1000,"write":%s}`, media, grant("http-put", name))
}

func read(name, media string) string {
	return fmt.Sprintf(`{"media_type":%q,"max_bytes":1000,"read":%s}`, media, grant("http-get", name))
}

func TestTrajectoriesByGrant(t *testing.T) {
	t.Parallel()
	agent := answering()
	agent.Extensions = []a2a.Extension{a2a.Trajectory(true)}
	agent.Run = func(_ context.Context, r *a2a.Request) (a2a.Result, error) {
		err := errors.Join(r.Trajectory.SetFormat("f"), r.Trajectory.Append(map[string]any{"n": 1}), r.Trajectory.Append(map[string]any{"n": 2}))
		return a2a.Result{Parts: []a2a.Part{a2a.Text("x")}}, err
	}
	p := serve(t, agent, a2a.Settings{StagingDir: t.TempDir()})
	id := p.send(sending{text: "x", context: "c"}).text("id")
	for key, of := range map[string]string{"t": `"task_id":"` + id + `"`, "c": `"context_id":"c"`} {
		got := p.ext("POST", "/ext/trajectory", `{`+of+`,"objects":{"trajectory":`+write(key, "application/json")+`}}`, 200)
		if got.text("objects", "trajectory", "size_bytes") != "17" || len(got.text("objects", "trajectory", "sha256")) != 64 {
			t.Errorf("%v", got)
		}
		if _, text, _ := p.do("GET", staged+key, ""); text != `[{"n":1},{"n":2}]` {
			t.Error(text)
		}
	}
	for _, c := range []struct {
		body   string
		status int
		says   string
	}{
		{`{"task_id":"` + id + `","objects":{"trajectory":` + write("x", "text/plain") + `}}`, 400, "application/json"},
		{`{"task_id":"` + id + `","objects":{}}`, 400, "missing"},
		{`{"task_id":"` + id + `","objects":{"trajectory":{}}}`, 400, "object"},
		{`{"task_id":"nope","objects":{"trajectory":` + write("x", "application/json") + `}}`, 404, "nope"},
		{`{"task_id":"` + id + `","objects":{"trajectory":` + strings.Replace(write("x", "application/json"), `"max_bytes":1000`, `"max_bytes":3`, 1) + `}}`, 413, `"code":"transfer_too_large"`},
	} {
		status, text, _ := p.do("POST", "/ext/trajectory", c.body)
		if status != c.status || !strings.Contains(text, c.says) || strings.Contains(text, "invalid/") {
			t.Errorf("%d %s", status, text)
		}
	}
}

func TestSkillBundles(t *testing.T) {
	t.Parallel()
	client := transfer.NewClient(transfer.Options{})
	t.Cleanup(client.Close)
	dir := t.TempDir()
	var shown []a2a.Skill
	agent := answering()
	agent.Run = func(_ context.Context, r *a2a.Request) (a2a.Result, error) {
		shown = r.Skills
		return a2a.Result{Parts: []a2a.Part{a2a.Text("x")}}, nil
	}
	agent.Extensions = []a2a.Extension{a2a.SkillConfig(nil, func(ctx context.Context, b a2a.SkillBundle) error {
		return b.Download(ctx, client, filepath.Join(dir, b.Name))
	})}
	p := serve(t, agent, a2a.Settings{StagingDir: t.TempDir()})
	for _, name := range []string{"SKILL.md", "more"} {
		if status, text, _ := p.do("PUT", staged+name, "# "+name); status != 201 {
			t.Fatal(text)
		}
	}
	file := func(path, object string) string {
		return fmt.Sprintf(`{"path":%q,"object":%s}`, path, read(object, "application/octet-stream"))
	}
	body := func(name string, limit int, files ...string) string {
		return fmt.Sprintf(`{"name":%q,"description":"d","skill_bundle":{"max_total_bytes":%d,"files":[%s]}}`, name, limit, strings.Join(files, ","))
	}
	root, more := file("SKILL.md", "SKILL.md"), file("sub/more.md", "more")
	for _, bad := range []string{body("b", 5000, more), body("b", 5000, root, root), body("b", 1500, root, more), body("b", 5000, root, file("../x", "more")),
		body("b", 5000, root, file("/x", "more")), body("b", 0, root), body("../b", 5000, root)} {
		p.ext("POST", "/ext/skill-config", bad, 400)
	}
	if got := p.ext("POST", "/ext/skill-config", body("b", 5000, root, file("gone.md", "gone")), 502); got.text("error", "code") != "transfer_rejected" {
		t.Errorf("%v", got)
	}
	if got := p.ext("POST", "/ext/skill-config", body("b", 5000, root, more), 200); got.text("name") != "b" {
		t.Errorf("%v", got)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "b", "sub", "more.md")); err != nil || string(text) != "# more" {
		t.Errorf("%s %v", text, err)
	}
	p.send(sending{text: "x"})
	if len(shown) != 1 || shown[0] != (a2a.Skill{Name: "b", Description: "d"}) {
		t.Errorf("%v", shown)
	}
}

// saver keeps what it is asked.
type saver struct{ asked []string }

func (s *saver) Save(_ context.Context, id string, to a2a.SnapshotTargets) (a2a.SnapshotWritten, error) {
	if id != "c" {
		return a2a.SnapshotWritten{}, fault.New(fault.NotFound, "there is no context %q", id)
	}
	s.asked = append(s.asked, fmt.Sprint("save ", to.Workspace != nil))
	out := a2a.SnapshotWritten{Trajectory: transfer.Uploaded{Size: 1}}
	if to.Workspace != nil {
		out.Workspace = &transfer.Uploaded{Size: 2}
	}
	return out, nil
}

func (s *saver) Load(_ context.Context, from a2a.SnapshotSources, target string) (string, error) {
	s.asked = append(s.asked, fmt.Sprint("load ", from.Workspace != nil, " ", target))
	return "new", nil
}

func (s *saver) EnableChangelog(_ context.Context, to transfer.NamespaceGrant, roots []string) ([]string, error) {
	s.asked = append(s.asked, fmt.Sprint("enable ", to.RootPath, roots))
	return []string{"/w"}, nil
}

func (s *saver) ApplyChangelog(_ context.Context, c a2a.Changelog) (string, error) {
	s.asked = append(s.asked, fmt.Sprint("apply ", len(c.Increments), c.ResumeConversation))
	if c.ResumeConversation {
		return "resumed", nil
	}
	return "", nil
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	s := &saver{}
	agent := answering()
	agent.Extensions = []a2a.Extension{a2a.Snapshot(s)}
	p := serve(t, agent, a2a.Settings{})
	octets := "application/octet-stream"
	increment := func(n int) string { return fmt.Sprintf(`{"sequence":%d,"object":%s}`, n, read("i", octets)) }
	namespace := `{"root_path":"r","expires_at":"2099-01-01T00:00:00Z","max_objects":1,"max_object_bytes":1,"max_total_bytes":1,"write":` +
		`{"kind":"http-post-policy","url":"https://h/x","fields":{},"path_field":"key","file_field":"file"}}`
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/ext/snapshot", `{"context_id":"c","objects":{"trajectory":` + write("t", octets) + `}}`, 200, `{"context_id":"c","objects":{"trajectory":{"size_bytes":1}}}`},
		{"POST", "/ext/snapshot", `{"context_id":"c","objects":{"trajectory":` + write("t", octets) + `,"workspace":` + write("w", octets) + `}}`, 200,
			`{"context_id":"c","objects":{"trajectory":{"size_bytes":1},"workspace":{"size_bytes":2}}}`},
		{"POST", "/ext/snapshot", `{"context_id":"x","objects":{"trajectory":` + write("t", octets) + `}}`, 404, ``},
		{"POST", "/ext/snapshot", `{"context_id":"c","objects":{"trajectory":` + write("t", "application/json") + `}}`, 400, ``},
		{"PUT", "/ext/snapshot", `{"objects":{"trajectory":` + read("t", octets) + `},"target_context_id":"tc"}`, 200, `{"context_id":"new"}`},
		{"PUT", "/ext/snapshot", `{"objects":{"trajectory":` + read("t", octets) + `,"workspace":` + read("w", "text/plain") + `}}`, 400, ``},
		{"POST", "/ext/snapshot/changelog", `{"write_namespace":` + namespace + `,"roots":["/a"]}`, 200, `{"roots":["/w"]}`},
		{"POST", "/ext/snapshot/changelog", `{"write_namespace":{}}`, 400, ``},
		{"PUT", "/ext/snapshot/changelog", `{"increments":[` + increment(1) + `,` + increment(3) + `]}`, 200, `{"count":2}`},
		{"PUT", "/ext/snapshot/changelog", `{"increments":[],"resume_conversation":true}`, 200, `{"context_id":"resumed","count":0}`},
		{"PUT", "/ext/snapshot/changelog", `{"increments":[` + increment(3) + `,` + increment(3) + `]}`, 400, ``},
		{"PUT", "/ext/snapshot/changelog", `{"increments":[` + increment(-1) + `]}`, 400, ``},
	} {
		status, text, _ := p.do(c.method, c.path, c.body)
		if status != c.status || c.want != "" && text != c.want {
			t.Errorf("%s %s %s:\n%d %s", c.method, c.path, c.body, status, text)
		}
	}
	want := "[save false save true load false tc enable r[/a] apply 2 false apply 0 true]"
	if got := fmt.Sprint(s.asked); got != want {
		t.Error(got)
	}
}
