//go:build integration

package agent_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// reference runs the reference on a state folder.
func reference(t *testing.T, state string, args ...string) string {
	t.Helper()
	program := os.Getenv("AGENT_ENV_REFERENCE")
	if program == "" {
		t.Fatal("AGENT_ENV_REFERENCE must name the reference's program; make test installs it")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = state
	cmd.Env = append(os.Environ(), "HOME="+state, "XDG_STATE_HOME="+state, "NO_COLOR=1", "NO_PROXY=127.0.0.1")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, out, errs.String())
	}
	return string(out)
}

func referenceDocs(t *testing.T, state string) document.Store {
	t.Helper()
	folder := filepath.Join(state, "agent-env", "document_store")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return openDocs(t, filepath.Join(folder, "documents.db"))
}

// TestReferenceReads has the reference show an agent and an instance that ours stored.
func TestReferenceReads(t *testing.T) {
	state := t.TempDir()
	docs := referenceDocs(t, state)
	if err := docs.Insert(t.Context(), "artifacts", doc.Of("id", image.ID, "type", "docker_image", "version", doc.Int(image.Version), "description", "d",
		"image_name", "docker.io/library/x:1", "platform", "linux/amd64")); err != nil {
		t.Fatal(err)
	}
	put, err := agent.NewDocuments(docs, nil, nil).Put(t.Context(), agent.NewAgent{ID: "my-agent", Image: image, DefaultEnv: doc.Of("Z", "1", "A", "2"),
		Metadata: doc.Of("default_model", "m", "min_disk_size_gb", doc.Float(12))})
	if err != nil {
		t.Fatal(err)
	}
	got, err := doc.Parse([]byte(reference(t, state, "a2a-agent", "get", "--id", "my-agent")), doc.Options{})
	if err != nil || !doc.Equal(got, put.Document) || shape(got) != shape(put.Document) {
		t.Errorf("the reference reads %s, %v", doc.Canonical(got), err)
	}
	in := agent.Instance{InstanceID: "my-agent-12345678", AgentID: "my-agent", AgentVersion: 1, URL: "http://h:1", SandboxID: "box", SandboxType: "local",
		Card: doc.Of("name", "n"), CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}
	if err := agent.NewInstances(docs).Put(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	shown := reference(t, state, "a2a-agent", "get-instance", "--id", in.InstanceID)
	for _, want := range []string{"my-agent-12345678", "http://h:1"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the reference shows %s", shown)
		}
	}
}

// TestReadsReferenceConversation has the reference prompt an agent and reads the conversation it stored.
func TestReadsReferenceConversation(t *testing.T) {
	s := &script{t: t, card: `{"name":"s","url":"/a2a","capabilities":{}}`, methods: map[string]func(int, *doc.Object) any{
		"message/send": func(int, *doc.Object) any { return task("submitted") },
		"tasks/get":    func(int, *doc.Object) any { return task("completed", text("a"), text("b")) },
	}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	state := t.TempDir()
	steps := `[{"id":"d","type":"deploy_human_agent","agent_name":"peer","a2a_url":"` + server.URL + `"},{"id":"p","type":"prompt_agent","agent_name":"peer","prompt":"hello"}]`
	if err := os.WriteFile(filepath.Join(state, "task.json"), []byte(steps), 0o600); err != nil {
		t.Fatal(err)
	}
	reference(t, state, "task", "create", "--id", "t1", "task.json")
	reference(t, state, "task", "run", "--id", "t1", "--output-dir", state)
	docs := referenceDocs(t, state)
	d, err := docs.FindOne(t.Context(), talks, document.By("target_agent_name", "peer"))
	if err != nil || d == nil {
		t.Fatal(d, err)
	}
	c, err := agent.NewConversations(docs, nil).Get(t.Context(), d.Str("conversation_id"))
	if err != nil || c.Status != agent.ConversationClosed || len(c.Messages) != 2 || c.Messages[0].Parts[0].Str("text") != "hello" || len(c.Tasks) != 1 ||
		c.Tasks[0].State != agent.Completed || *c.Tasks[0].Response != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	ours := agent.NewConversations(docs, nil)
	if err := ours.Open(t.Context(), agent.Conversation{ID: "ours", InstanceID: c.InstanceID, Source: "human_agent", Target: "peer"}); err != nil {
		t.Fatal(err)
	}
	if err := ours.AddMessage(t.Context(), "ours", "user", []*doc.Object{text("hello")}, "M"); err != nil {
		t.Fatal(err)
	}
	if err := ours.Complete(t.Context(), "ours", c.Messages[1].Parts); err != nil {
		t.Fatal(err)
	}
	if err := ours.Close(t.Context(), "ours"); err != nil {
		t.Fatal(err)
	}
	mine, err := docs.FindOne(t.Context(), talks, document.By("conversation_id", "ours"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := shape(mine), shape(d); got != want {
		t.Errorf("ours has the shape\n%s\nthe reference's\n%s", got, want)
	}
}

// shape is a document without what differs from one to the next: keys in their order, and the types of their values.
func shape(v any) string {
	switch v := v.(type) {
	case *doc.Object:
		var parts []string
		for _, k := range v.Keys() {
			parts = append(parts, k+":"+shape(v.Value(k)))
		}
		return "{" + strings.Join(parts, " ") + "}"
	case []any:
		var parts []string
		for _, el := range v {
			parts = append(parts, shape(el))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case doc.Number:
		return string(v)
	}
	return doc.TypeName(v)
}
