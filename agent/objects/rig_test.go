package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/agent/objects"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/a2a/echo"
	"agentenv/protocol/transfer"
	"agentenv/store/doc"
	"agentenv/store/object"
	"agentenv/store/object/grants"
	"agentenv/store/object/localfs"
)

// authority is the folder of the authority that every agent of these tests believes.
var authority string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "agentenv-objects-")
		if err != nil {
			log.Print(err)
			return 1
		}
		defer os.RemoveAll(dir)
		authority = filepath.Join(dir, "tls")
		server, err := grants.New(grants.Options{Dir: authority})
		if err != nil {
			log.Print(err)
			return 1
		}
		trust, err := server.Trust()
		if err == nil {
			err = os.Setenv("SSL_CERT_FILE", filepath.Join(trust, "ca-bundle.pem"))
		}
		if err != nil {
			log.Print(err)
			return 1
		}
		return m.Run()
	}())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fails checks an error's kind and text, and that it tells nothing of a grant or a staged path.
func fails(t testing.TB, err error, kind fault.Kind, says string) {
	t.Helper()
	if err == nil || !fault.Is(err, kind) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v (%s), not %s with %q", err, fault.KindOf(err), kind, says)
	}
	if err != nil && (strings.Contains(err.Error(), "/ext/staging/") || strings.Contains(err.Error(), "/v1/grants/")) {
		t.Errorf("%v tells a grant", err)
	}
}

// ways are the ways by which objects go.
type way string

const (
	byGrant    way = "by grant"
	byStaging  way = "by staging"  // over https
	byLoopback way = "by loopback" // staging of an agent on this machine, over http
	nowhere    way = "no way"      // no grants, and an agent on http elsewhere
	unreached  way = "grants afar" // grants that do not reach
)

// rig is a store, an agent and a mover between them.
type rig struct {
	t      testing.TB
	store  object.Store
	mover  *objects.Mover
	grants []object.Granting
	said   bytes.Buffer // what the mover logged
	e      agent.Endpoint
	agent  *stateful
	dir    string // of the agent's staging
	port   int    // of the agent's own server
	client *agent.Client

	mu    sync.Mutex
	calls []string                                     // what the agent was asked, with bodies
	fail  func(*http.Request) int                      // the status of an answer, 0 = the agent's own
	own   map[string]func(http.ResponseWriter, string) // answers by path, instead of the agent's
	http  *http.Client
}

// reaching are grants that reach one sandbox type.
type reaching struct {
	object.Grants
	kind string
}

func (r reaching) Reach(kind string) bool { return kind == r.kind }

func newRig(t testing.TB, w way, settings a2a.Settings) *rig {
	t.Helper()
	r := &rig{t: t, agent: &stateful{client: transfer.NewClient(transfer.Options{})}, dir: t.TempDir()}
	t.Cleanup(r.agent.client.Close)
	var err error
	r.store, err = localfs.New(filepath.Join(t.TempDir(), "objects"))
	must(t, err)
	if settings.StagingDir = r.dir; w == byGrant || w == nowhere || w == unreached {
		settings.StagingMaxBytes = -1
	}
	kit, err := a2a.New(context.WithoutCancel(t.Context()), r.agent.describe(), settings)
	must(t, err)
	plain := httptest.NewServer(r.recorded(kit.Handler()))
	t.Cleanup(func() {
		plain.Close()
		must(t, kit.Close(context.Background()))
	})
	at := plain
	if w == byStaging { // the agent behind what ends TLS, as providers have it
		to, err := url.Parse(plain.URL)
		must(t, err)
		at = httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }})
		t.Cleanup(at.Close)
	}
	if r.http = http.DefaultClient; w == byStaging {
		r.http = at.Client()
	}
	r.client = agent.NewClient(agent.Options{HTTP: at.Client()})
	t.Cleanup(r.client.Close)
	r.port = plain.Listener.Addr().(*net.TCPAddr).Port
	o := objects.Options{Client: r.client, Log: slog.New(slog.NewTextHandler(&r.said, nil)), Store: r.store, HTTP: at.Client(), Near: func(kind string) bool { return w == byLoopback && kind == "here" }}
	if w == byGrant || w == unreached {
		server, err := grants.New(grants.Options{Dir: authority, Advertise: "localhost", Bind: "127.0.0.1"})
		must(t, err)
		t.Cleanup(func() { must(t, server.Close()) })
		issuer := server.Of("s", r.store).Issuer(func(string) grants.Place { return grants.Place{Here: true} })
		r.grants = []object.Granting{{Store: r.store, Grants: reaching{issuer, map[way]string{byGrant: "here", unreached: "there"}[w]}}}
	}
	o.Grants = r.grants
	r.mover = objects.New(o)
	t.Cleanup(r.mover.Close)
	r.e = agent.Endpoint{URL: at.URL, Sandbox: "box-1", SandboxType: "here"}
	r.e.Card, err = r.client.AwaitCard(t.Context(), r.e, 10*time.Second)
	must(t, err)
	return r
}

// recorded keeps what the agent is asked through its extensions.
func (r *rig) recorded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/ext/") {
			r.mu.Lock()
			fail, own := r.fail, r.own[req.URL.Path]
			line := req.Method + " " + req.URL.Path
			if !strings.HasPrefix(req.URL.Path, "/ext/staging") {
				body, _ := io.ReadAll(req.Body)
				req.Body = io.NopCloser(bytes.NewReader(body))
				line += " " + string(body)
			}
			r.calls = append(r.calls, line)
			r.mu.Unlock()
			if own != nil {
				own(w, line)
				return
			}
			if fail != nil {
				if status := fail(req); status != 0 {
					w.WriteHeader(status)
					return
				}
			}
		}
		h.ServeHTTP(w, req)
	})
}

func (r *rig) failing(f func(*http.Request) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = f
}

// answer gives answers in place of the agent's.
func (r *rig) answer(path string, by func(http.ResponseWriter, string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.own = map[string]func(http.ResponseWriter, string){path: by}
}

// read gets a URL as an agent does.
func (r *rig) read(url string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, url, nil)
	must(r.t, err)
	resp, err := r.http.Do(req)
	must(r.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(r.t, err)
	return string(b)
}

// asked returns the requests whose line has this start.
func (r *rig) asked(start string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if strings.HasPrefix(c, start) {
			out = append(out, c)
		}
	}
	return out
}

func (r *rig) url(key string) string {
	r.t.Helper()
	u, err := r.store.URL(key)
	must(r.t, err)
	return u
}

func (r *rig) put(key, content string) string {
	r.t.Helper()
	w, err := r.store.Put(r.t.Context(), object.Item{Key: key, Size: int64(len(content)), Body: strings.NewReader(content)}, true)
	must(r.t, err)
	return w.URL
}

func (r *rig) get(url string) string {
	r.t.Helper()
	body, err := r.store.Open(r.t.Context(), url)
	if err != nil {
		return err.Error()
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	must(r.t, err)
	return string(b)
}

// staged returns the files that lie on the agent.
func (r *rig) staged() (out []string) {
	_ = filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return nil
	})
	return out
}

// say sends a message and returns the task's id.
func (r *rig) say(text, contextID string) string {
	r.t.Helper()
	reply, err := r.client.Send(r.t.Context(), r.e, agent.Turn{ContextID: contextID, Timeout: time.Minute, Parts: []*doc.Object{agent.Text(text)}})
	must(r.t, err)
	return reply.TaskID
}

// stateful is the echo agent with a state: a text for each context, and a changelog.
type stateful struct {
	client *transfer.Client

	mu     sync.Mutex
	states map[string]string
	log    *transfer.Namespace
	skills []string
	made   []string // increments, with their numbers
}

func (s *stateful) describe() a2a.Agent {
	s.states = map[string]string{}
	a := echo.Agent(a2a.Snapshot(s))
	for i, e := range a.Extensions {
		if strings.Contains(e.URI, "skill-config") {
			a.Extensions[i] = a2a.SkillConfig(nil, s.install)
		}
	}
	return a
}

func (s *stateful) install(ctx context.Context, b a2a.SkillBundle) error {
	dir, err := os.MkdirTemp("", "agentenv-skill-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := b.Download(ctx, s.client, dir); err != nil {
		return err
	}
	for _, f := range b.Files {
		text, err := os.ReadFile(filepath.Join(dir, f.Path))
		if err != nil {
			return err
		}
		s.skills = append(s.skills, fmt.Sprintf("%s/%s=%s", b.Name, f.Path, text))
	}
	return nil
}

func (s *stateful) Save(ctx context.Context, id string, to a2a.SnapshotTargets) (out a2a.SnapshotWritten, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, known := s.states[id]
	if !known {
		return out, fault.New(fault.NotFound, "no context %s", id)
	}
	if out.Trajectory, err = s.client.Upload(ctx, to.Trajectory, transfer.Bytes([]byte("talk of "+state))); err != nil || to.Workspace == nil {
		return out, err
	}
	w, err := s.client.Upload(ctx, *to.Workspace, transfer.Bytes([]byte("work of "+state)))
	out.Workspace = &w
	return out, err
}

func (s *stateful) fetch(ctx context.Context, o transfer.ReadObject) (string, error) {
	var text []byte
	_, err := s.client.Fetch(ctx, o, func(_ string, body io.Reader) (err error) {
		text, err = io.ReadAll(body)
		return err
	})
	return string(text), err
}

func (s *stateful) Load(ctx context.Context, from a2a.SnapshotSources, id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, err := s.fetch(ctx, from.Trajectory)
	if err == nil && from.Workspace != nil {
		var more string
		more, err = s.fetch(ctx, *from.Workspace)
		state += ", " + more
	}
	if id == "" {
		id = "fresh"
	}
	s.states[id] = state
	return id, err
}

func (s *stateful) EnableChangelog(_ context.Context, to transfer.NamespaceGrant, roots []string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = s.client.Namespace(to)
	if roots == nil {
		roots = []string{"/app"}
	}
	return roots, nil
}

func (s *stateful) ApplyChangelog(ctx context.Context, c a2a.Changelog) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range c.Increments {
		text, err := s.fetch(ctx, i.Object)
		if err != nil {
			return "", err
		}
		s.made = append(s.made, fmt.Sprintf("%d:%s", i.Sequence, text))
	}
	if !c.ResumeConversation {
		return "", nil
	}
	if c.TargetContextID == "" {
		return "", errors.New("no context")
	}
	return c.TargetContextID, nil
}
