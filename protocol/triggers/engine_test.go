package triggers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/protocol/triggers"
)

func decoded(t testing.TB, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func engine(t testing.TB, list string) *triggers.Engine {
	t.Helper()
	e := triggers.New(func() time.Time { return time.Unix(0, 0) })
	if list != "" {
		if _, err := e.Register(decoded(t, list)); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func decide(t *testing.T, e *triggers.Engine, turn triggers.Turn) triggers.Decision {
	t.Helper()
	d, err := e.Decide(t.Context(), turn)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const sayEnd = `[{"id":"t","when":{"type":"step","turn":2},"actions":[{"type":"say","text":"stop now"},{"type":"end"}]}]`

// TestATurnIsDecidedOnce goes through turns, and back to the first.
func TestATurnIsDecidedOnce(t *testing.T) {
	t.Parallel()
	e := engine(t, sayEnd)
	for _, c := range []struct {
		turn int64
		want string
	}{{1, " false []"}, {2, "stop now true [t]"}, {3, " false []"}, {1, " false []"}, {2, "stop now true [t]"}} {
		d := decide(t, e, triggers.Turn{Number: c.turn})
		if got := fmt.Sprint(d.Text, " ", d.Done, " ", d.Fired); got != c.want {
			t.Errorf("turn %d: %s, want %s", c.turn, got, c.want)
		}
	}
	var kinds []string
	for _, entry := range e.State()["firing_log"].([]any) {
		kinds = append(kinds, entry.(map[string]any)["kind"].(string))
	}
	if got := strings.Join(kinds, " "); got != "registered fired reset fired" {
		t.Error(got)
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	envs := map[string]map[string]string{"mail": {"m": "fired", "n": "waiting"}}
	for _, c := range []struct {
		when string
		turn triggers.Turn
		want bool
	}{
		{`{"type":"step"}`, triggers.Turn{Number: 1}, true},
		{`{"type":"step","turn":2,"cmp":"gte"}`, triggers.Turn{Number: 3}, true},
		{`{"type":"step","turn":2,"cmp":"gte"}`, triggers.Turn{Number: 1}, false},
		{`{"type":"env_trigger","env_id":"mail","trigger_id":"m"}`, triggers.Turn{Number: 1, Envs: envs}, true},
		{`{"type":"env_trigger","env_id":"mail","trigger_id":"n"}`, triggers.Turn{Number: 1, Envs: envs}, false},
		{`{"type":"env_trigger","env_id":"mail","trigger_id":"n","status":"waiting"}`, triggers.Turn{Number: 1, Envs: envs}, true},
		{`{"type":"env_trigger","env_id":"none","trigger_id":"m"}`, triggers.Turn{Number: 1, Envs: envs}, false},
		{`{"type":"conversational","where":{"message":{"regex":"(?i)PRICE(?! list)"}}}`, triggers.Turn{Number: 1, Message: "the price is"}, true},
		{`{"type":"conversational","where":{"message":{"regex":"(?i)PRICE(?! list)"}}}`, triggers.Turn{Number: 1, Message: "the price list"}, false},
		{`{"type":"conversational","where":{"message":{"equals":"yes"}}}`, triggers.Turn{Number: 1, Message: "yes"}, true},
		{`{"type":"conversational","where":{"message":{"equals":5}}}`, triggers.Turn{Number: 1, Message: "5"}, false},
		{`{"type":"conversational","where":{"message":{"exists":true}}}`, triggers.Turn{Number: 1, Message: "x"}, true},
		{`{"type":"conversational","where":{"message":{"exists":false}}}`, triggers.Turn{Number: 1}, true},
		{`{"type":"all","of":[{"type":"step"},{"type":"step","turn":2}]}`, triggers.Turn{Number: 1}, false},
		{`{"type":"any","of":[{"type":"step"},{"type":"step","turn":2}]}`, triggers.Turn{Number: 2}, true},
		{`{"type":"all","of":[{"type":"any","of":[{"type":"step","turn":9}]},{"type":"step"}]}`, triggers.Turn{Number: 1}, false},
	} {
		e := engine(t, `[{"when":`+c.when+`,"actions":[{"type":"end"}]}]`)
		if d := decide(t, e, c.turn); d.Done != c.want {
			t.Errorf("%s on %+v: %v", c.when, c.turn, d.Done)
		}
	}
}

func TestRegistrationsThatAreRefused(t *testing.T) {
	t.Parallel()
	end := `"actions":[{"type":"end"}]`
	step := `"when":{"type":"step"}`
	many := strings.Repeat(`{`+step+`,`+end+`},`, triggers.MaxTriggers) + `{` + step + `,` + end + `}`
	long := strings.Repeat("x", 5000)
	for _, c := range []struct{ list, want string }{
		{`[]`, "at least one"}, {`{}`, "at least one"}, {`[5]`, "triggers[0]"},
		{`[{"id":"",` + step + `,` + end + `}]`, "id must be a string"},
		{`[{"id":5,` + step + `,` + end + `}]`, "id must be a string"},
		{`[{"once":1,` + step + `,` + end + `}]`, "once"},
		{`[{` + end + `}]`, "when"}, {`[{"when":{"type":"never"},` + end + `}]`, "when.type"},
		{`[{"when":{"type":"step","turn":0},` + end + `}]`, "when.turn"}, {`[{"when":{"type":"step","turn":true},` + end + `}]`, "when.turn"},
		{`[{"when":{"type":"step","turn":1.5},` + end + `}]`, "when.turn"}, {`[{"when":{"type":"step","cmp":"lt"},` + end + `}]`, "when.cmp"},
		{`[{"when":{"type":"env_trigger","env_id":"e"},` + end + `}]`, "when.trigger_id"},
		{`[{"when":{"type":"conversational","where":{"tone":{"exists":true}}},` + end + `}]`, "when.where"},
		{`[{"when":{"type":"conversational","where":{"message":{"exists":true,"equals":1}}},` + end + `}]`, "exactly one"},
		{`[{"when":{"type":"conversational","where":{"message":{"regex":"("}}},` + end + `}]`, "regex is no pattern"},
		{`[{"when":{"type":"conversational","where":{"message":{"regex":"` + long + `"}}},` + end + `}]`, "regex"},
		{`[{"when":{"type":"all","of":[]},` + end + `}]`, "when.of"}, {`[{"when":{"type":"any","of":[{"type":"step","turn":-1}]},` + end + `}]`, "when.of[0].turn"},
		{`[{` + step + `}]`, "actions"}, {`[{` + step + `,"actions":[{"type":"say","text":""}]}]`, "actions[0].text"}, {`[{` + step + `,"actions":[{"type":"shout"}]}]`, "actions[0].type"},
		{`[{"id":"a",` + step + `,` + end + `},{"id":"a",` + step + `,` + end + `}]`, "twice"},
		{`[{"id":"t",` + step + `,` + end + `}]`, "already registered"},
		{`[` + many + `]`, "at most"},
		{`[{` + step + `,"actions":[` + strings.Repeat(`{"type":"say","text":"`+long+`"},`, 4) + `{"type":"end"}]}]`, "bytes of JSON"},
		{`[{"when":` + strings.Repeat(`{"type":"all","of":[`, 100) + `{"type":"step"}` + strings.Repeat(`]}`, 100) + `,` + end + `}]`, "nested"},
	} {
		e := engine(t, sayEnd)
		if _, err := e.Register(decoded(t, c.list)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: %v, want %q", c.list, err, c.want)
		}
		if n := len(e.State()["triggers"].([]any)); n != 1 {
			t.Errorf("%.80s left %d triggers", c.list, n)
		}
	}
}

// TestTheSameTriggerAgain is no second one, whatever unknown keys it has and in whatever order.
func TestTheSameTriggerAgain(t *testing.T) {
	t.Parallel()
	e := engine(t, sayEnd)
	r, err := e.Register(decoded(t, `[{"actions":[{"text":"stop now","type":"say","x":1},{"type":"end"}],"once":true,"when":{"cmp":"eq","turn":2,"type":"step"},"id":"t","note":5},
		{"id":"u","when":{"type":"step"},"actions":[{"type":"end"}]}]`))
	if err != nil || fmt.Sprint(r) != "{[u] [t u]}" {
		t.Errorf("%v, %v", r, err)
	}
}

func TestTurnsThatAreRefused(t *testing.T) {
	t.Parallel()
	e := engine(t, sayEnd)
	for _, turn := range []triggers.Turn{{}, {Number: 1, Message: strings.Repeat("é", triggers.MaxMessage+1)}, {Number: 1, Context: strings.Repeat("c", triggers.MaxContextID+1)}} {
		if _, err := e.Decide(t.Context(), turn); !fault.Is(err, fault.Invalid) {
			t.Errorf("%.60v: %v", turn, err)
		}
	}
}

// TestContextsAreBounded refuses one more context, and goes on with those it has.
func TestContextsAreBounded(t *testing.T) {
	t.Parallel()
	e := engine(t, sayEnd)
	for i := range triggers.MaxContexts {
		decide(t, e, triggers.Turn{Number: 1, Context: fmt.Sprint(i)})
	}
	if _, err := e.Decide(t.Context(), triggers.Turn{Number: 1, Context: "more"}); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	if d := decide(t, e, triggers.Turn{Number: 2, Context: "0"}); !d.Done {
		t.Error("a known context no longer fires")
	}
}

// TestASlowPattern leaves nothing behind: the same turn can be decided afterwards.
func TestASlowPattern(t *testing.T) {
	t.Parallel()
	e := engine(t, `[{"id":"first","when":{"type":"step"},"actions":[{"type":"end"}]},
		{"id":"slow","when":{"type":"conversational","where":{"message":{"regex":"(a+)+$"}}},"actions":[{"type":"end"}]}]`)
	if _, err := e.Decide(t.Context(), triggers.Turn{Number: 1, Message: strings.Repeat("a", 60) + "!"}); !fault.Is(err, fault.Timeout) {
		t.Fatal(err)
	}
	if n := len(e.State()["firing_log"].([]any)); n != 1 {
		t.Errorf("%d entries in the log", n)
	}
	if d := decide(t, e, triggers.Turn{Number: 1, Message: "aa"}); fmt.Sprint(d.Fired) != "[first slow]" {
		t.Error(d)
	}
}

func FuzzRegister(f *testing.F) {
	f.Add(sayEnd)
	f.Add(`[{"when":{"type":"all","of":[{"type":"conversational","where":{"message":{"regex":"a"}}}]},"actions":[{"type":"say","text":"x"}]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		var v any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return
		}
		e := triggers.New(time.Now)
		if _, err := e.Register(v); err == nil {
			_, _ = e.Decide(t.Context(), triggers.Turn{Number: 1, Message: "a"})
		}
	})
}
