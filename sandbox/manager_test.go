package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/place"
)

// backend is a provider that keeps its machines in memory.
type backend struct {
	name      string
	caps      sandbox.Capabilities
	createErr error
	stuck     int           // how many attempts to end something fail
	slow      time.Duration // how long ending something takes
	hold      chan struct{} // when set, Create waits for it and does not look at its context: a request already in flight

	mu         sync.Mutex
	next       int
	machines   map[string]bool
	found      []sandbox.Found
	creating   int
	mostAtOnce int
}

func newBackend(name string, modes ...sandbox.Mode) *backend {
	return &backend{name: name, caps: sandbox.Capabilities{Modes: modes}, machines: map[string]bool{}}
}

type machine struct{ info sandbox.Info }

func (m machine) Info() sandbox.Info { return m.info }
func (m machine) Host() place.Place  { return nil }
func (m machine) Container(context.Context, string) (place.Place, error) {
	return nil, fault.New(fault.NotFound, "no container")
}
func (m machine) ScopedName(n string) string { return n + "-" + m.info.ID }
func (m machine) Close() error               { return nil }

func (b *backend) Name() string                                              { return b.name }
func (b *backend) Capabilities() sandbox.Capabilities                        { return b.caps }
func (b *backend) Prepare(context.Context, sandbox.Spec, func(string)) error { return nil }
func (b *backend) Check(context.Context) []sandbox.Lack                      { return nil }
func (b *backend) Close() error                                              { return nil }
func (b *backend) List(context.Context) ([]sandbox.Found, error)             { return b.found, nil }
func (b *backend) Remove(context.Context, sandbox.Found) error               { return nil }
func (b *backend) NewID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	return fmt.Sprintf("%s-%d", b.name, b.next)
}

func (b *backend) Create(ctx context.Context, id string, s sandbox.Spec) (sandbox.Machine, error) {
	if b.createErr != nil {
		return nil, b.createErr
	}
	b.mu.Lock()
	b.creating++
	b.mostAtOnce = max(b.mostAtOnce, b.creating)
	b.machines[id] = true
	b.mu.Unlock()
	if b.hold != nil {
		<-b.hold
	}
	b.mu.Lock()
	b.creating--
	b.mu.Unlock()
	return machine{sandbox.Info{ID: id, Type: b.name, Mode: sandbox.VM}}, nil
}

func (b *backend) Attach(_ context.Context, id string) (sandbox.Machine, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.machines[id] {
		return nil, fault.New(fault.NotFound, "no machine %s", id)
	}
	return machine{sandbox.Info{ID: id, Type: b.name, Mode: sandbox.VM}}, nil
}

func (b *backend) Terminate(ctx context.Context, id string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.slow):
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stuck > 0 {
		b.stuck--
		return fault.New(fault.Unavailable, "it does not let go of %s", id)
	}
	delete(b.machines, id)
	return nil
}

func (b *backend) up() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.machines)
}

func newManager(t *testing.T, limit int, providers ...sandbox.Provider) (*sandbox.Manager, *sandbox.Ledger) {
	t.Helper()
	ledger := sandbox.OpenLedger(filepath.Join(t.TempDir(), "state dir", "sandboxes.db"))
	m, err := sandbox.NewManager(sandbox.Config{Providers: providers, Default: providers[0].Name(), Ledger: ledger, Gate: sandbox.NewGate(limit)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, ledger
}

func vm(instance string) sandbox.Spec {
	return sandbox.Spec{Name: "box", Mode: sandbox.VM, Owner: sandbox.Owner{Instance: instance}}
}

func TestDeployWritesTheLedgerAndTerminateEndsIt(t *testing.T) {
	b := newBackend("fake", sandbox.VM)
	m, ledger := newManager(t, 4, b)
	ctx := t.Context()
	made, err := m.Deploy(ctx, "", vm("run-1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := m.Of(ctx, "run-1")
	if err != nil || len(rows) != 1 || rows[0].State != sandbox.Live || rows[0].ID != made.Info().ID || !rows[0].Process.Alive() {
		t.Fatalf("ledger of the run: %+v, %v", rows, err)
	}
	if until := time.Until(rows[0].ExpiresAt); until < 119*time.Minute || until > 2*time.Hour {
		t.Errorf("the default time to live is 2 h, the row expires in %s", until)
	}
	rec := sandbox.Record{Name: "box", ID: made.Info().ID, Type: "fake", Mode: sandbox.VM}
	for range 2 {
		if err := m.Terminate(ctx, rec); err != nil {
			t.Fatal(err)
		}
	}
	if b.up() != 0 {
		t.Error("the machine is still up")
	}
	if row, _ := ledger.Get(ctx, rec.ID); row == nil || row.State != sandbox.Gone {
		t.Errorf("row after terminate: %+v", row)
	}
	if _, err := m.Attach(ctx, rec); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "run the whole task again") {
		t.Errorf("attach to a gone sandbox: %v", err)
	}
}

// TestTerminateTriesAgain ends a sandbox that lets go at the third attempt, and names one that does not.
func TestTerminateTriesAgain(t *testing.T) {
	for _, c := range []struct {
		stuck int
		state sandbox.State
	}{{2, sandbox.Gone}, {3, sandbox.Ending}} {
		t.Run(fmt.Sprint(c.stuck), func(t *testing.T) {
			t.Parallel()
			b := newBackend("fake", sandbox.VM)
			m, ledger := newManager(t, 4, b)
			made, err := m.Deploy(t.Context(), "", vm("run-1"), nil)
			if err != nil {
				t.Fatal(err)
			}
			b.stuck = c.stuck
			err = m.Terminate(t.Context(), sandbox.Record{Name: "box", ID: made.Info().ID, Type: "fake", Mode: sandbox.VM})
			if (err == nil) != (c.state == sandbox.Gone) || err != nil && !strings.Contains(err.Error(), made.Info().ID) {
				t.Error(err)
			}
			if row, _ := ledger.Get(t.Context(), made.Info().ID); row == nil || row.State != c.state {
				t.Errorf("its row is %+v", row)
			}
		})
	}
}

// TestManyEndSideBySide ends 100 sandboxes in the time of a few.
func TestManyEndSideBySide(t *testing.T) {
	const n, each = 100, 200 * time.Millisecond
	b := newBackend("fake", sandbox.VM)
	m, _ := newManager(t, n, b)
	var recs []sandbox.Record
	for i := range n {
		made, err := m.Deploy(t.Context(), "", vm(fmt.Sprint("run-", i)), nil)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, sandbox.Record{Name: "box", ID: made.Info().ID, Type: "fake", Mode: sandbox.VM})
	}
	b.slow = each
	began := time.Now()
	var all sync.WaitGroup
	for _, rec := range recs {
		all.Go(func() {
			if err := m.Terminate(t.Context(), rec); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); b.up() != 0 || took > n*each/4 {
		t.Errorf("%d are left after %s", b.up(), took)
	}
}

func TestValidate(t *testing.T) {
	strict := newBackend("strict", sandbox.Container)
	strict.caps.Allowlist = true
	m, _ := newManager(t, 4, newBackend("fake", sandbox.VM, sandbox.Container), strict)
	allow := &sandbox.NetworkPolicy{Mode: sandbox.Allowlist}
	for _, c := range []struct {
		name, spec string
		s          sandbox.Spec
		left       int
		want       string
	}{
		{"default", "", sandbox.Spec{Mode: sandbox.VM}, 1, ""},
		{"only commas", " , ", sandbox.Spec{Mode: sandbox.VM}, 0, "at least one backend"},
		{"unknown", "nope", sandbox.Spec{Mode: sandbox.VM}, 0, `Unknown sandbox backend: "nope" (expected one of fake, strict)`},
		{"unknown in a chain", "fake,nope", sandbox.Spec{Mode: sandbox.VM}, 0, "nope"},
		{"mode", "", sandbox.Spec{Mode: "VM"}, 0, "container, vm"},
		{"no image", "", sandbox.Spec{Mode: sandbox.Container, Port: 1}, 0, "requires `image` and `port`"},
		{"no port", "", sandbox.Spec{Mode: sandbox.Container, Image: "x"}, 0, "requires `image` and `port`"},
		{"port", "", sandbox.Spec{Mode: sandbox.Container, Image: "x", Port: 70000}, 0, "70000"},
		{"a link without vm", "strict,fake", sandbox.Spec{Mode: sandbox.VM}, 1, ""},
		{"no link with vm", "strict", sandbox.Spec{Mode: sandbox.VM}, 0, "strict makes no vm-mode sandboxes"},
		{"an engine of its own", "fake", sandbox.Spec{Mode: sandbox.Container, Image: "x", Port: 1, Docker: "y"}, 0, "fake can give a container no Docker Engine of its own"},
		{"policy", "fake", sandbox.Spec{Mode: sandbox.VM, Policy: allow}, 0, "cannot enforce network policy mode 'allowlist'"},
		{"policy drops a link", "fake,strict", sandbox.Spec{Mode: sandbox.Container, Image: "x", Port: 1, Policy: allow}, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			left, err := m.Validate(c.spec, c.s)
			if c.want == "" {
				if err != nil || len(left) != c.left {
					t.Fatalf("%d providers left, %v", len(left), err)
				}
				return
			}
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestChainTakesTheNextProvider(t *testing.T) {
	failing, good := newBackend("bad", sandbox.VM), newBackend("good", sandbox.VM)
	failing.createErr = errors.New("out of machines")
	m, ledger := newManager(t, 4, failing, good)
	made, err := m.Deploy(t.Context(), "bad,good", vm("r"), nil)
	if err != nil || made.Info().Type != "good" {
		t.Fatalf("%v, %v", made, err)
	}
	if row, _ := ledger.Get(t.Context(), "bad-1"); row == nil || row.State != sandbox.Gone {
		t.Errorf("row of the failed creation: %+v", row)
	}
	good.createErr = errors.New("none left")
	_, err = m.Deploy(t.Context(), "bad,good", vm("r"), nil)
	if err == nil || !strings.Contains(err.Error(), "bad: out of machines") || !strings.Contains(err.Error(), "good: none left") {
		t.Errorf("both reasons must be named: %v", err)
	}
}

func TestCancelOvertakesACreation(t *testing.T) {
	b := newBackend("fake", sandbox.VM)
	b.hold = make(chan struct{})
	m, _ := newManager(t, 4, b)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() { _, err := m.Deploy(ctx, "", vm("r"), nil); done <- err }()
	for b.up() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel(errors.New("cancelled by Ctrl-C"))
	close(b.hold)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "cancelled by Ctrl-C") {
		t.Fatalf("error: %v", err)
	}
	if b.up() != 0 {
		t.Error("the machine of the overtaken creation is still up")
	}
	if rows, _ := m.Of(t.Context(), "r"); len(rows) != 0 {
		t.Errorf("the ledger takes it for alive: %+v", rows)
	}
}

func TestGateQueuesRunsAndNeverASecondSandboxOfOne(t *testing.T) {
	g := sandbox.NewGate(2)
	ctx := t.Context()
	for _, run := range []string{"a", "a", "b", "a"} {
		if err := g.Enter(ctx, run); err != nil {
			t.Fatal(err)
		}
	}
	entered := make(chan error)
	go func() { entered <- g.Enter(ctx, "c") }()
	select {
	case <-entered:
		t.Fatal("a third run got in beside two")
	case <-time.After(20 * time.Millisecond):
	}
	g.Leave("a")
	g.Leave("a")
	select {
	case <-entered:
		t.Fatal("run a still holds a sandbox")
	case <-time.After(20 * time.Millisecond):
	}
	g.Leave("a")
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := g.Enter(late, "d"); err == nil {
		t.Fatal("entered a full gate")
	}
	g.Leave("b")
	if err := g.Enter(ctx, "d"); err != nil {
		t.Fatal("a run that gave up waiting may come again: ", err)
	}
}

func TestManyRunsQueue(t *testing.T) {
	b := newBackend("fake", sandbox.VM)
	m, _ := newManager(t, 3, b)
	var wg sync.WaitGroup
	var mu sync.Mutex
	most := 0
	for i := range 60 {
		wg.Go(func() {
			made, err := m.Deploy(t.Context(), "", vm(fmt.Sprint("run-", i)), nil)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			most = max(most, b.up())
			mu.Unlock()
			if err := m.Terminate(t.Context(), sandbox.Record{ID: made.Info().ID, Type: "fake", Mode: sandbox.VM}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most > 3 || b.up() != 0 {
		t.Errorf("%d were up at once beside a cap of 3, %d are left", most, b.up())
	}
}

func TestPruneNamesExactlyWhatIsOursAndDead(t *testing.T) {
	ctx := t.Context()
	b := newBackend("fake", sandbox.VM)
	m, ledger := newManager(t, 4, b)
	now := time.Now()
	dead := sandbox.Process{Host: sandbox.ThisProcess().Host, Boot: "another boot", PID: 1, Start: "1"}
	row := func(id string, p sandbox.Process, state sandbox.State, expires time.Time) {
		if err := ledger.Add(ctx, sandbox.Row{ID: id, Type: "fake", State: state, CreatedAt: now, ExpiresAt: expires, Process: p}); err != nil {
			t.Fatal(err)
		}
		b.machines[id] = true
	}
	row("alive", sandbox.ThisProcess(), sandbox.Live, now.Add(time.Hour))
	row("orphan", dead, sandbox.Live, now.Add(time.Hour))
	row("expired", sandbox.ThisProcess(), sandbox.Live, now.Add(-3*time.Hour))
	row("left", dead, sandbox.Gone, now.Add(time.Hour))
	found := func(id, state string, expires time.Time) sandbox.Found {
		return sandbox.Found{Provider: "fake", Kind: "container", Ref: "ref-" + id, Name: "agent-" + id, SandboxID: id, StateRoot: state, ExpiresAt: expires}
	}
	b.found = []sandbox.Found{
		found("alive", "mine", now.Add(time.Hour)), found("left", "mine", now.Add(time.Hour)),
		found("others", "theirs", now.Add(time.Hour)), found("others-expired", "theirs", now.Add(-time.Hour)),
		{Provider: "fake", Kind: "volume", Name: "helper"},
	}
	doomed, problems, err := m.Prune(ctx, "mine")
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	why := map[string]string{}
	for _, d := range doomed {
		why[d.ID] = d.Why
	}
	for id, want := range map[string]string{"orphan": "is gone", "expired": "expired 3 h ago", "left": "recorded as gone", "others-expired": "expired 60 min ago"} {
		if !strings.Contains(why[id], want) {
			t.Errorf("%s: %q, want %q", id, why[id], want)
		}
		delete(why, id)
	}
	if len(why) > 0 {
		t.Errorf("these must stay: %v", why)
	}
	for _, d := range doomed {
		if err := m.Remove(ctx, d); err != nil {
			t.Error(err)
		}
	}
	if !b.machines["alive"] || b.machines["orphan"] || b.machines["expired"] {
		t.Errorf("machines after pruning: %v", b.machines)
	}
	b.found = []sandbox.Found{{Provider: "fake", Kind: "volume", Name: "helper"}}
	if err := m.Terminate(ctx, sandbox.Record{ID: "alive", Type: "fake"}); err != nil {
		t.Fatal(err)
	}
	doomed, _, err = m.Prune(ctx, "mine")
	if err != nil || len(doomed) != 1 || doomed[0].Found[0].Name != "helper" {
		t.Errorf("with nothing else up the shared volume goes: %+v, %v", doomed, err)
	}
}

func TestReadingTheLedgerCreatesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sandboxes.db")
	l := sandbox.OpenLedger(file)
	rows, err := l.Alive(t.Context(), "")
	if err != nil || rows != nil {
		t.Fatal(rows, err)
	}
	if m, _ := filepath.Glob(file + "*"); len(m) > 0 {
		t.Errorf("created %v", m)
	}
}

func TestPolicy(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`null`, ""},
		{`{}`, ""},
		{`{"mode":"allow_all"}`, ""},
		{`{"mode":"allowlist","allow_hosts":["*.x.com"],"allow_cidrs":["10.0.0.0/8"]}`, ""},
		{`{"mode":"allowlist"}`, ""},
		{`"allow_all"`, "object"},
		{`{"mode":"deny"}`, "Unknown network policy mode"},
		{`{"mode":"allowlist","allow_hosts":"x.com"}`, "sequence of entries"},
		{`{"mode":"allowlist","allow_hosts":["*"]}`, "bare"},
		{`{"allow_hosts":["x.com"]}`, "silently ignored"},
		{`{"mode":"allowlist","hosts":[]}`, "unknown key"},
	} {
		p, err := sandbox.ParsePolicy(parse(t, c.text))
		if c.want == "" && err != nil || c.want != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, %v; want %q", c.text, p, err, c.want)
		}
	}
}

func TestProvidersToCome(t *testing.T) {
	m, err := sandbox.NewManager(sandbox.Config{Providers: []sandbox.Provider{newBackend("fake", sandbox.VM)}, Default: "fake", Later: []string{"cloud"},
		Ledger: sandbox.OpenLedger(filepath.Join(t.TempDir(), "l.db"))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Resolve("fake,cloud"); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "not supported yet") {
		t.Errorf("a provider to come: %v", err)
	}
}
