package triggers

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"agentenv/fault"
	"agentenv/pattern"
)

// trigger is one parsed trigger.
type trigger struct {
	id   string
	once bool
	kind string // of its condition
	when condition
	says []string
	ends bool
	text string // its normalized content, by which two are told apart
}

// reader takes a trigger's fields and keeps what is wrong first.
type reader struct {
	at  string
	err error
}

func (r *reader) fail(field, format string, args ...any) {
	if r.err == nil {
		r.err = fault.New(fault.Invalid, "%s: %s %s", r.at, field, fmt.Sprintf(format, args...))
	}
}

func parseAll(list any) ([]*trigger, error) {
	items, ok := list.([]any)
	switch {
	case !ok || len(items) == 0:
		return nil, fault.New(fault.Invalid, "triggers must be a list of at least one trigger")
	case len(items) > MaxTriggers:
		return nil, fault.New(fault.Invalid, "triggers: %d in one registration, %d at most", len(items), MaxTriggers)
	}
	seen := map[string]bool{}
	out := make([]*trigger, len(items))
	for i, v := range items {
		o, ok := v.(map[string]any)
		if !ok {
			return nil, fault.New(fault.Invalid, "triggers[%d] must be an object", i)
		}
		t, err := parseTrigger(o, i)
		switch {
		case err != nil:
			return nil, err
		case seen[t.id]:
			return nil, fault.New(fault.Invalid, "trigger %q is in this registration twice", t.id)
		}
		seen[t.id], out[i] = true, t
	}
	return out, nil
}

func parseTrigger(o map[string]any, i int) (*trigger, error) {
	t := &trigger{once: true}
	r := &reader{at: fmt.Sprintf("triggers[%d]", i)}
	if v, given := o["id"]; given && v != nil {
		t.id = r.text("id", v, 1, maxID)
		r.at = fmt.Sprintf("trigger %q", t.id)
	} else {
		t.id = newID()
	}
	if v, given := o["once"]; given {
		if t.once, given = v.(bool); !given {
			r.fail("once", "must be true or false")
		}
	}
	var spec any
	t.kind, _ = object(o["when"])["type"].(string)
	t.when, spec = r.condition("when", o["when"], 0)
	actions := r.actions(t, o["actions"])
	if r.err != nil {
		return nil, r.err
	}
	t.text = compact(map[string]any{"once": t.once, "when": spec, "actions": actions})
	if len(t.text) > MaxSpecBytes {
		r.fail("it", "is %d bytes of JSON, %d at most", len(t.text), MaxSpecBytes)
	}
	return t, r.err
}

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

func (r *reader) text(field string, v any, least, most int) string {
	s, ok := v.(string)
	if n := utf8.RuneCountInString(s); !ok || n < least || n > most {
		r.fail(field, "must be a string of %d to %d characters", least, most)
	}
	return s
}

func (r *reader) actions(t *trigger, v any) (kept []any) {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		r.fail("actions", "must be a list of at least one action")
		return nil
	}
	for i, v := range list {
		at := "actions[" + strconv.Itoa(i) + "]"
		switch o := object(v); o["type"] {
		case "say":
			said := r.text(at+".text", o["text"], 1, maxText)
			t.says = append(t.says, said)
			kept = append(kept, map[string]any{"type": "say", "text": said})
		case "end":
			t.ends = true
			kept = append(kept, map[string]any{"type": "end"})
		default:
			r.fail(at+".type", "must be say or end")
		}
	}
	return kept
}

// condition reads a `when` and returns it with its normalized form.
func (r *reader) condition(at string, v any, depth int) (condition, any) {
	o, ok := v.(map[string]any)
	switch {
	case !ok:
		r.fail(at, "must be an object")
		return nil, nil
	case depth > maxNested:
		r.fail(at, "is nested more than %d deep", maxNested)
		return nil, nil
	}
	kind, _ := o["type"].(string)
	switch kind {
	case "step":
		return r.step(at, o)
	case "env_trigger":
		c := envCondition{env: r.text(at+".env_id", o["env_id"], 1, maxEnvID), id: r.text(at+".trigger_id", o["trigger_id"], 1, maxID), status: "fired"}
		if v, given := o["status"]; given {
			c.status = r.text(at+".status", v, 1, maxStatus)
		}
		return c, map[string]any{"type": kind, "env_id": c.env, "trigger_id": c.id, "status": c.status}
	case "conversational":
		return r.conversational(at, o)
	case "all", "any":
		list, ok := o["of"].([]any)
		if !ok || len(list) == 0 {
			r.fail(at+".of", "must be a list of at least one condition")
			return nil, nil
		}
		c := several{all: kind == "all"}
		var specs []any
		for i, v := range list {
			inner, spec := r.condition(at+".of["+strconv.Itoa(i)+"]", v, depth+1)
			if r.err != nil {
				return nil, nil
			}
			c.of, specs = append(c.of, inner), append(specs, spec)
		}
		return c, map[string]any{"type": kind, "of": specs}
	}
	r.fail(at+".type", "must be step, env_trigger, conversational, all or any")
	return nil, nil
}

func (r *reader) step(at string, o map[string]any) (condition, any) {
	c := stepCondition{turn: 1}
	if v, given := o["turn"]; given {
		n, ok := v.(json.Number)
		turn, err := strconv.ParseInt(n.String(), 10, 64)
		if !ok || err != nil || turn < 1 {
			r.fail(at+".turn", "must be an integer from 1")
		}
		c.turn = turn
	}
	cmp := "eq"
	if v, given := o["cmp"]; given {
		cmp, _ = v.(string)
	}
	if cmp != "eq" && cmp != "gte" {
		r.fail(at+".cmp", "must be eq or gte")
	}
	c.later = cmp == "gte"
	return c, map[string]any{"type": "step", "turn": c.turn, "cmp": cmp}
}

func (r *reader) conversational(at string, o map[string]any) (condition, any) {
	where, ok := o["where"].(map[string]any)
	if p, there := where["message"]; ok && there && len(where) == 1 {
		c, spec := r.predicate(at+".where.message", p)
		return c, map[string]any{"type": "conversational", "where": map[string]any{"message": spec}}
	}
	r.fail(at+".where", "must be an object with the one field message")
	return nil, nil
}

func (r *reader) predicate(at string, v any) (condition, any) {
	o, ok := v.(map[string]any)
	var kinds []string
	for _, k := range []string{"regex", "equals", "exists"} {
		if _, there := o[k]; there {
			kinds = append(kinds, k)
		}
	}
	if !ok || len(kinds) != 1 {
		r.fail(at, "must hold exactly one of regex, equals and exists")
		return nil, nil
	}
	v = o[kinds[0]]
	spec := map[string]any{kinds[0]: v}
	switch kinds[0] {
	case "regex":
		text := r.text(at+".regex", v, 0, maxPattern)
		if r.err != nil {
			return nil, nil
		}
		re, err := pattern.Compile(text)
		if err != nil {
			r.fail(at+".regex", "is no pattern: %s", pattern.Reason(err))
			return nil, nil
		}
		return matches{re}, spec
	case "exists":
		want, ok := v.(bool)
		if !ok {
			r.fail(at+".exists", "must be true or false")
		}
		return exists(want), spec
	}
	text, isText := v.(string)
	return equals{text, isText}, spec
}
