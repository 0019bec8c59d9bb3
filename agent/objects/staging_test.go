package objects_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/agent/objects"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/store/doc"
	"agentenv/store/object"
)

// TestStagingFails tells what is wrong with an agent's staging, and nothing of where it is.
func TestStagingFails(t *testing.T) {
	t.Parallel()
	staged := func(method string, status int) func(*http.Request) int {
		return func(r *http.Request) int {
			if strings.HasPrefix(r.URL.Path, "/ext/staging/") && r.Method == method {
				return status
			}
			return 0
		}
	}
	for _, c := range []struct {
		method string
		status int
		says   string
	}{
		{"PUT", 413, "its staging is full"},
		{"PUT", 400, "it answered 400"},
		{"PUT", 507, "its disk is full"},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, byStaging, a2a.Settings{})
			r.failing(staged(c.method, c.status))
			_, err := r.mover.LoadSnapshot(t.Context(), r.e, objects.Snapshot{Trajectory: r.put("s", "x")}, "")
			fails(t, err, fault.Unavailable, c.says)
			tries := 1
			if c.status >= 500 {
				tries = 3
			}
			if n := len(r.asked("PUT /ext/staging/")); n != tries || len(r.asked("PUT /ext/snapshot")) != 0 || len(r.asked("DELETE /ext/staging/")) != 1 {
				t.Error(n, r.asked(""))
			}
		})
	}
	r := newRig(t, byStaging, a2a.Settings{StagingMaxBytes: 10})
	_, err := r.mover.LoadSnapshot(t.Context(), r.e, objects.Snapshot{Trajectory: r.put("s", "123456"), Workspace: r.put("w", "123456")}, "")
	fails(t, err, fault.Unavailable, "holds 10 at most")
	if n := len(r.asked("PUT")); n != 0 {
		t.Error(r.asked(""))
	}
	r.agent.states["c"] = strings.Repeat("x", 20)
	_, err = r.mover.SaveSnapshot(t.Context(), r.e, "c", objects.Snapshot{Trajectory: r.url("s2")})
	fails(t, err, fault.Invalid, "transfer_too_large")
	r.agent.states["c"] = ""
	r.failing(staged("GET", 404))
	_, err = r.mover.SaveSnapshot(t.Context(), r.e, "c", objects.Snapshot{Trajectory: r.url("s2")})
	fails(t, err, fault.Unavailable, "says that it wrote the trajectory, but it is not there")
	if left := r.staged(); len(left) > 0 {
		t.Error("left on the agent:", left)
	}
}

// small is a store that takes few bytes at once.
type small struct{ object.Grants }

func (small) MaxSingleUpload() int64 { return 5 }

// TestSingleUploads lowers what an agent may write to what the store takes at once.
func TestSingleUploads(t *testing.T) {
	t.Parallel()
	r := newRig(t, byGrant, a2a.Settings{})
	r.agent.states["c"] = "c"
	r.grants[0].Grants = small{r.grants[0].Grants}
	_, err := r.mover.SaveSnapshot(t.Context(), r.e, "c", objects.Snapshot{Trajectory: r.url("s")})
	fails(t, err, fault.Invalid, "transfer_too_large")
	if asked := r.asked("POST /ext/snapshot"); !strings.Contains(asked[0], `"max_bytes":5,`) {
		t.Error(asked)
	}
}

// TestHints says what to look at when an agent cannot use a grant.
func TestHints(t *testing.T) {
	t.Parallel()
	for w, says := range map[way]string{byGrant: "grant_advertise_host", byStaging: "upgrade the agent"} {
		r := newRig(t, w, a2a.Settings{})
		to := objects.Snapshot{Trajectory: r.put("s", "x")}
		e := r.e
		if w == byGrant {
			e = scripted(t, r.e, unavailable)
		} else {
			r.answer("/ext/snapshot", unavailable)
		}
		_, err := r.mover.LoadSnapshot(t.Context(), e, to, "")
		fails(t, err, fault.Unavailable, says)
	}
}

func unavailable(w http.ResponseWriter, _ string) {
	w.WriteHeader(http.StatusBadGateway)
	fmt.Fprint(w, `{"error":{"code":"transfer_unavailable","message":"x","retryable":true}}`)
}

func TestReadableParts(t *testing.T) {
	t.Parallel()
	file := func(uri string) *doc.Object {
		return doc.Of("kind", "file", "file", doc.Of("uri", uri, "name", "n", "mimeType", "text/plain"), "metadata", doc.Of("m", true))
	}
	for _, w := range []way{byGrant, byStaging} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, w, a2a.Settings{})
			a, b := r.put("a", "text of a"), r.put("b", "text of b")
			given := []*doc.Object{agent.Text("x"), file(a), file("https://elsewhere.example/x"), file(b), file(a),
				doc.Of("kind", "file", "file", doc.Of("bytes", "eA==")), doc.Of("kind", "data", "data", doc.Of("uri", a))}
			kept := doc.DeepClone(given[1])
			got, release, err := r.mover.Readable(t.Context(), r.e, given, time.Hour, map[string]bool{a: true})
			must(t, err)
			url := got[1].Obj("file").Str("uri")
			if !strings.HasPrefix(url, "https://") || got[4].Obj("file").Str("uri") != url || got[1].Obj("file").Str("name") != "n" || !doc.Equal(given[1], kept) {
				t.Error(got)
			}
			for _, i := range []int{0, 2, 3, 5, 6} {
				if got[i] != given[i] {
					t.Errorf("part %d became %v", i, got[i])
				}
			}
			if text := r.read(url); text != "text of a" {
				t.Error(text)
			}
			release(t.Context())
			if left := r.staged(); len(left) > 0 {
				t.Error("left on the agent:", left)
			}
			_, _, err = r.mover.Readable(t.Context(), r.e, []*doc.Object{file(r.url("gone"))}, time.Hour, nil)
			fails(t, err, fault.NotFound, "there is no object")
			r.e.Sandbox = ""
			if got, _, err := r.mover.Readable(t.Context(), r.e, given, time.Hour, nil); err != nil || got[1] != given[1] {
				t.Error(got, err)
			}
		})
	}
	for _, w := range []way{nowhere, unreached, byLoopback} {
		r := newRig(t, w, a2a.Settings{})
		url := r.put("a", "x")
		_, _, err := r.mover.Readable(t.Context(), r.e, []*doc.Object{file(url)}, time.Hour, nil)
		for _, says := range []string{url, "object store for file: URLs", "provider here"} {
			fails(t, err, fault.Unsupported, says)
		}
		if asked := r.asked(""); len(asked) > 0 {
			t.Error(asked)
		}
	}
}
