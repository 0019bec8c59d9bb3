package task

import (
	"context"
	"testing"

	"agentenv/store/doc"
)

// A value that a step keeps is kept as it is: only items that are put beside others are a set.
func TestAValueKeepsItsRepeats(t *testing.T) {
	const value = `{"zeros": [0, 0], "rows": [[1, 1, 2], [1, 1, 2]], "deep": {"list": ["a", "b", "a", "c", "d", "e"]}, "once": [1, 2]}`
	r := newRig(t, deeds{
		"result": func(_ context.Context, run *Run) error {
			run.Set(parse(t, value), "script_results", "one")
			run.Append("first", "notes")
			return nil
		},
		"beside": func(_ context.Context, run *Run) error {
			run.Set(parse(t, value), "script_results", "two")
			run.Append("first", "notes")
			return nil
		},
	})
	res := r.run(r.task(`[{"id":"result","type":"do"},{"id":"beside","type":"do"}]`), Options{})
	r.sound(res)
	for _, key := range []string{"one", "two"} {
		if got := res.Context.Obj("metadata").Obj("script_results").Value(key); !doc.Equal(got, parse(t, value)) {
			t.Errorf("%s is %s, want %s", key, show(got), value)
		}
	}
	if notes := res.Context.Obj("metadata").Arr("notes"); len(notes) != 1 {
		t.Errorf("the same note twice is one, not %s", show(notes))
	}
}
