package modelagent_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const staged = "/ext/staging/0123456789012345678901/"

// at is a grant for a staged object of the agent itself, which it uses over loopback: no other way leads to the host it names.
func at(kind, name string) object {
	return object{"kind": kind, "url": "https://agent.invalid" + staged + name, "expires_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "headers": object{"AgentEnv-Staging-Path": staged + name}}
}

func writing(name string) object {
	return object{"media_type": "application/octet-stream", "max_bytes": 1 << 20, "write": at("http-put", name)}
}

// put stages an object and returns the grant to read it.
func (r rig) put(name string, content []byte) object {
	r.t.Helper()
	r.raw(http.MethodPut, staged+name, content)
	sum := sha256.Sum256(content)
	return object{"media_type": "application/octet-stream", "max_bytes": 1 << 20, "size_bytes": len(content), "sha256": hex.EncodeToString(sum[:]), "read": at("http-get", name)}
}

func (r rig) raw(method, path string, body []byte) (int, []byte) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, text
}

// ask is post for requests that may be refused.
func (r rig) ask(method, path string, body object) (int, string) {
	r.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	status, out := r.raw(method, path, text)
	return status, string(out)
}

const remembers = `{"turns":[{"when":"write","tools":[{"name":"bash","arguments":{"command":"mkdir -p sub; echo kept > sub/file; chmod 750 sub/file; ln -s file sub/link; echo two > other"}}]},
	{"when":"again","text":"I go on."},{"text":"Done."}]}`

// TestConversationsAreKept: another agent goes on with what one was told, and finds the files it made.
func TestConversationsAreKept(t *testing.T) {
	t.Parallel()
	one, other := serve(t, "openai", remembers), serve(t, "openai", remembers)
	if status, _ := one.send("talk", words("write it")); !strings.HasPrefix(said(status), "completed|Done.|") {
		t.Fatal(said(status))
	}
	if status, text := one.ask("POST", "/ext/snapshot", object{"context_id": "nobody", "objects": object{"trajectory": writing("t")}}); status != 404 || !strings.Contains(text, "nobody") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := one.ask("POST", "/ext/snapshot", object{"context_id": "talk", "objects": object{"trajectory": writing("t"), "workspace": writing("w")}}); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	_, trajectory := one.raw("GET", staged+"t", nil)
	_, workspace := one.raw("GET", staged+"w", nil)
	if err := os.WriteFile(filepath.Join(other.dir, "other"), []byte("mine, and longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := object{"trajectory": other.put("t", trajectory), "workspace": other.put("w", workspace)}
	status, text := other.ask("PUT", "/ext/snapshot", object{"objects": objects, "target_context_id": "here"})
	if status != 200 || !strings.Contains(text, `"here"`) {
		t.Fatalf("%d %s", status, text)
	}
	for name, want := range map[string]string{"sub/file": "kept\n", "sub/link": "kept\n", "other": "two\n"} {
		if got, err := os.ReadFile(filepath.Join(other.dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(other.dir, "sub/file")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v %v", err, info)
	}
	if status, _ := other.send("here", words("again")); !strings.HasPrefix(said(status), "completed|I go on.|") {
		t.Error(said(status))
	}
	sent, _ := json.Marshal(other.server.Requests()[0].Body["messages"])
	if !strings.Contains(string(sent), "write it") || !strings.Contains(string(sent), "mkdir -p sub") {
		t.Errorf("the conversation does not go on: %s", sent)
	}
	if status, _ := other.ask("PUT", "/ext/snapshot", object{"objects": objects, "target_context_id": "here"}); status != 409 {
		t.Errorf("over a conversation that is there: %d", status)
	}
	if status, text := other.ask("PUT", "/ext/snapshot", object{"objects": object{"trajectory": objects["trajectory"]}}); status != 200 || strings.Contains(text, `""`) {
		t.Errorf("%d %s", status, text)
	}
	claude := serve(t, "anthropic", remembers)
	if status, text := claude.ask("PUT", "/ext/snapshot", object{"objects": object{"trajectory": claude.put("t", trajectory)}}); status != 400 || !strings.Contains(text, "openai") {
		t.Errorf("a conversation with another endpoint: %d %s", status, text)
	}
}

// packed makes a compressed tar.
func packed(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	out := tar.NewWriter(zip)
	for _, h := range headers {
		content := strings.Repeat("x", int(h.Size))
		if err := out.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(out, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestWorkspacesThatLeadElsewhere write nothing outside the folder in which commands run.
func TestWorkspacesThatLeadElsewhere(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	file := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 3}
	}
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink, Mode: 0o777}
	}
	r := serve(t, "openai", remembers)
	trajectory := r.put("t", []byte(`{"format":"agentenv-model-agent/v1","api":"openai","messages":[]}`))
	for i, bad := range [][]byte{
		packed(t, file("../up")), packed(t, file(outside+"/abs")), packed(t, file("a/../../up")),
		packed(t, link("out", outside), file("out/through")), packed(t, link("out2", ".."), file("out2/through")),
		packed(t, file("f"), file("f/below")), []byte("no tar"), {},
	} {
		workspace := r.put(fmt.Sprint("w", i), bad)
		if status, text := r.ask("PUT", "/ext/snapshot", object{"objects": object{"trajectory": trajectory, "workspace": workspace}}); status != 400 || !strings.Contains(text, "workspace") {
			t.Errorf("%d: %d %s", i, status, text)
		}
	}
	for _, bad := range []string{"", "[]", "{", `{"format":"other"}`} {
		if status, text := r.ask("PUT", "/ext/snapshot", object{"objects": object{"trajectory": r.put("bad", []byte(bad))}}); status != 400 || !strings.Contains(text, "no conversation of this agent") {
			t.Errorf("%q: %d %s", bad, status, text)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("%v %v", err, left)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(r.dir), "up")); err == nil {
		t.Error("a file lies outside")
	}
}
