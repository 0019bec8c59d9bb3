package proxy

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	wire "github.com/a2aproject/a2a-go/a2a"

	"agentenv/fault"
	"agentenv/protocol/a2a"
)

// answered is an error with a status of its own.
type answered struct {
	status     int
	code, text string
}

func (a answered) Error() string { return a.text }

// Response is what the driver gets.
func (a answered) Response() (int, any) {
	return a.status, map[string]any{"detail": a.text, "code": a.code}
}

func (d *desk) allow(token *string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if token == nil || d.owner == "" || subtle.ConstantTimeCompare([]byte(*token), []byte(d.owner)) != 1 {
		return answered{401, "unauthorized", "the token is not the one that claimed this proxy"}
	}
	return nil
}

type empty struct{}

type claimed struct {
	Token string `json:"token" agent:"min=22"`
}

func (d *desk) claim(_ context.Context, in claimed) (empty, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owner == "" {
		d.owner = in.Token
	}
	if subtle.ConstantTimeCompare([]byte(in.Token), []byte(d.owner)) != 1 {
		return empty{}, fault.New(fault.Conflict, "another driver has claimed this proxy")
	}
	return empty{}, nil
}

type toNext struct {
	Token *string `json:"token"`
	After int64   `json:"after" agent:"optional"`
}

func (d *desk) next(ctx context.Context, in toNext) (map[string]any, error) {
	if err := d.allow(in.Token); err != nil {
		return nil, err
	}
	end := time.After(d.o.Poll)
	for {
		d.mu.Lock()
		version, news := d.version, d.news
		turns := []any{}
		for _, t := range d.turns {
			turns = append(turns, t.shown(d.o.Skills))
		}
		d.mu.Unlock()
		if version > in.After || !d.await(ctx, news, end) {
			return map[string]any{"version": version, "turns": turns}, nil
		}
	}
}

type ofTurn struct {
	Token *string `json:"token"`
	Task  string  `json:"task_id"`
}

func (d *desk) tools(ctx context.Context, in ofTurn) (map[string]any, error) {
	t, err := d.find(in.Token, in.Task)
	if err != nil {
		return nil, err
	}
	offered, err := t.offer(ctx, d.shell)
	if err != nil {
		return nil, err
	}
	list := []any{}
	for _, o := range offered {
		list = append(list, o.shown())
	}
	return map[string]any{"tools": list}, nil
}

// find checks the token and returns an open turn.
func (d *desk) find(token *string, task string) (*turn, error) {
	if err := d.allow(token); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.turnOf(task)
}

type toAct struct {
	Token  *string        `json:"token"`
	Task   string         `json:"task_id"`
	ID     string         `json:"action_id" agent:"min=1,max=128"`
	Action map[string]any `json:"action"`
}

// act starts an action once and waits for its end.
func (d *desk) act(ctx context.Context, in toAct) (map[string]any, error) {
	t, err := d.find(in.Token, in.Task)
	if err != nil {
		return nil, err
	}
	a, err := d.begin(ctx, t, in)
	if err != nil {
		return nil, err
	}
	return d.waitFor(ctx, a)
}

// begin returns the action of an id, started now unless it was before.
func (d *desk) begin(ctx context.Context, t *turn, in toAct) (*action, error) {
	d.mu.Lock()
	known := d.actions[in.ID]
	d.mu.Unlock()
	if known == nil {
		wanted, err := parseAction(in.Action)
		if err != nil {
			return nil, err
		}
		if wanted.bash && d.shell == nil {
			return nil, fault.New(fault.Conflict, "this proxy has no shell")
		}
		if err := t.check(ctx, d.shell); err != nil {
			return nil, err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if known = d.actions[in.ID]; known == nil {
			if _, err := d.turnOf(t.id); err != nil || d.closed {
				return nil, fault.New(fault.NotFound, "no turn of the task %q is open", t.id)
			}
			if err := t.take(wanted); err != nil {
				return nil, err
			}
			a := &action{turn: t, wanted: wanted, done: make(chan struct{})}
			d.actions[in.ID] = a
			d.running.Add(1)
			t.acting.Go(func() {
				defer d.running.Done()
				a.run(d.shell, d.o.Now)
			})
			return a, nil
		}
	}
	if known.turn != t {
		return nil, fault.New(fault.Conflict, "the action %q is another turn's", in.ID)
	}
	return known, nil
}

type toResult struct {
	Token *string `json:"token"`
	ID    string  `json:"action_id"`
}

func (d *desk) result(ctx context.Context, in toResult) (map[string]any, error) {
	if err := d.allow(in.Token); err != nil {
		return nil, err
	}
	d.mu.Lock()
	a := d.actions[in.ID]
	d.mu.Unlock()
	if a == nil {
		return nil, noAction(in.ID)
	}
	return d.waitFor(ctx, a)
}

func noAction(id string) error { return fault.New(fault.NotFound, "there is no action %q", id) }

func (d *desk) waitFor(ctx context.Context, a *action) (map[string]any, error) {
	end := time.NewTimer(d.o.Poll)
	defer end.Stop()
	select {
	case <-a.done:
		if a.stopped {
			return nil, fault.New(fault.NotFound, "the action was stopped with its turn")
		}
		return map[string]any{"done": true, "result": a.result}, nil
	case <-end.C:
	case <-ctx.Done():
	}
	return map[string]any{"done": false}, nil
}

type toRecord struct {
	Token   *string        `json:"token"`
	Task    string         `json:"task_id"`
	Message any            `json:"message"`
	Model   *string        `json:"model"`
	Usage   map[string]any `json:"usage" agent:"optional"`
}

// record notes one call of the driver's model.
func (d *desk) record(ctx context.Context, in toRecord) (empty, error) {
	t, err := d.find(in.Token, in.Task)
	if err != nil {
		return empty{}, err
	}
	said, err := parseMessage(in.Message)
	if err != nil {
		return empty{}, err
	}
	offered, err := t.offer(ctx, d.shell)
	if err != nil {
		return empty{}, err
	}
	return empty{}, t.record(d.o.Now(), said, in, offered)
}

type toReply struct {
	Token *string          `json:"token"`
	Task  string           `json:"task_id"`
	Parts []map[string]any `json:"parts" agent:"optional"`
	Error *string          `json:"error"`
}

// reply closes a turn.
func (d *desk) reply(_ context.Context, in toReply) (empty, error) {
	t, err := d.find(in.Token, in.Task)
	switch {
	case err != nil:
		return empty{}, err
	case (in.Error == nil) == (len(in.Parts) == 0):
		return empty{}, fault.New(fault.Invalid, "give either parts, at least one, or error")
	case in.Error != nil:
		t.finish(a2a.Fail("proxy.driver_error", *in.Error))
		return empty{}, nil
	}
	text, err := json.Marshal(in.Parts)
	if err != nil {
		return empty{}, fault.New(fault.Invalid, "parts cannot be read")
	}
	var parts wire.ContentParts
	if err := json.Unmarshal(text, &parts); err != nil {
		return empty{}, fault.New(fault.Invalid, "parts are no A2A parts")
	}
	if n := t.owed(); n > 0 {
		return empty{}, fault.New(fault.Conflict, "%d recorded calls of tools have not run; run them, then reply", n)
	}
	t.finish(a2a.Result{Parts: parts})
	return empty{}, nil
}

// install keeps a skill as a folder with its SKILL.md.
func (d *desk) install(_ context.Context, s a2a.Skill) error {
	if d.shell == nil || d.o.Skills == "" {
		return fault.New(fault.Conflict, "this proxy has no shell, so nobody could read a skill")
	}
	dir := filepath.Join(d.o.Skills, s.Name)
	if _, err := os.Lstat(dir); err == nil {
		return fault.New(fault.Conflict, "there is a skill %q already", s.Name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fault.Wrap(fault.KindOf(err), err, "the skill %q", s.Name)
	}
	if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(s.SkillMD), 0o644); err != nil { //nolint:gosec // for the shell's user to read
		_ = os.RemoveAll(dir)
		return fault.Wrap(fault.KindOf(err), err, "the skill %q", s.Name)
	}
	return nil
}
