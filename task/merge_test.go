package task

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"agentenv/store/doc"
)

// journalled is a run reduced to what decides its truth: the clean context, the secrets laid on it, and the rows as text.
type journalled struct {
	clean  *doc.Object
	hidden secrets
	rows   [][]byte
	unique int
}

func newJournalled() *journalled { return &journalled{clean: NewContext()} }

type openView struct {
	run  *Run
	base *doc.Object
}

func (j *journalled) open(id string) openView {
	live := j.hidden.lay(j.clean).(*doc.Object)
	return openView{NewRun(id, "do", live, nil, nil), j.clean}
}

func (j *journalled) commit(t *rapid.T, v openView) *delta {
	changes, err := storableChanges(diff(v.run.state.start, v.run.Context()))
	if err != nil {
		t.Fatal(err)
	}
	d, _ := rebase(changes, v.base, j.clean)
	after := d.apply(j.clean)
	text, err := doc.Marshal(d.encode(after))
	if err != nil {
		t.Fatal(err)
	}
	j.rows = append(j.rows, text)
	j.clean = after
	j.hidden.hide(changes)
	return d
}

func (j *journalled) replay(t *rapid.T) *doc.Object {
	var rows []Row
	for _, text := range j.rows {
		ops, err := doc.ParseObject(text, doc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, Row{Ops: ops})
	}
	c, err := Replay(rows)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (j *journalled) value(t *rapid.T, depth int) any {
	j.unique++
	fresh := doc.Int(j.unique)
	switch rapid.IntRange(0, 7+depth).Draw(t, "value") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return doc.Number([]string{"1", "1.0", "2"}[rapid.IntRange(0, 2).Draw(t, "n")])
	case 3:
		return fmt.Sprint("text", j.unique)
	case 4:
		return &doc.Object{}
	case 5:
		return []any{}
	case 6, 7:
		return fresh
	case 8:
		list := []any{}
		for range rapid.IntRange(1, 3).Draw(t, "len") {
			j.unique++
			list = append(list, doc.Of("id", doc.Int(j.unique), j.key(t), j.value(t, 0)))
		}
		return list
	}
	o := &doc.Object{}
	for range rapid.IntRange(1, 3).Draw(t, "len") {
		o.Set(j.key(t), j.value(t, depth-1))
	}
	return o
}

var testKeys = []string{"a", "b", "c", "verifications", "x.y", "$z", "", "litellm_api_key", "remote_tokens"}

func (j *journalled) key(t *rapid.T) string { return rapid.SampledFrom(testKeys).Draw(t, "key") }

func (j *journalled) path(t *rapid.T) []string {
	var p []string
	for range rapid.IntRange(1, 3).Draw(t, "depth") {
		p = append(p, j.key(t))
	}
	return p
}

// write does one random thing to a view.
func (j *journalled) write(t *rapid.T, r *Run) {
	switch rapid.IntRange(0, 7).Draw(t, "write") {
	case 0, 1:
		r.Set(j.value(t, 2), j.path(t)...)
	case 2:
		r.Unset(j.path(t)...)
	case 3, 4:
		j.unique++
		r.Append(doc.Of("id", doc.Int(j.unique)), j.path(t)...)
	case 5: // edit, cut or reorder a list of the metadata
		p := j.path(t)
		list, ok := r.Metadata(p...).([]any)
		if !ok || len(list) == 0 {
			return
		}
		list = slices.Clone(list)
		i := rapid.IntRange(0, len(list)-1).Draw(t, "at")
		switch rapid.IntRange(0, 2).Draw(t, "edit") {
		case 0:
			j.unique++
			list[i] = doc.Of("id", doc.Int(j.unique), "edited", true)
		case 1:
			list = slices.Delete(list, i, i+1)
		case 2:
			slices.Reverse(list)
		}
		r.Set(list, p...)
	case 6:
		j.unique++
		name := fmt.Sprint("box", rapid.IntRange(0, 3).Draw(t, "box"))
		_ = r.AddSandbox(Sandbox{Name: name, ID: fmt.Sprint("id", j.unique), Mode: "vm"}) // a taken name is refused
	case 7: // edit or remove a record
		key := rapid.SampledFrom([]string{"deployed_sandboxes", "deployed_agents", "deployed_envs"}).Draw(t, "list")
		list := slices.Clone(r.Context().Arr(key))
		if len(list) == 0 || rapid.IntRange(0, 2).Draw(t, "record") == 0 {
			j.unique++
			id := fmt.Sprint("r", j.unique)
			list = append(list, doc.Of("agent_name", id, "sandbox_name", id, "instance_id", id, "sandbox_id", id))
		} else if i := rapid.IntRange(0, len(list)-1).Draw(t, "at"); rapid.Bool().Draw(t, "remove") {
			list = slices.Delete(list, i, i+1)
		} else {
			j.unique++
			list[i] = list[i].(*doc.Object).Clone().Set("note", doc.Int(j.unique))
		}
		r.change(func(e *editor) { e.set([]string{key}, list) })
	}
}

// Whatever steps do, in whatever order they are committed, the rows amount to the live context.
func TestReplayedRowsAreTheLiveContext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := newJournalled()
		var open []openView
		for i := range rapid.IntRange(1, 14).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "start") {
				v := j.open(fmt.Sprint("s", i))
				for range rapid.IntRange(0, 4).Draw(t, "writes") {
					j.write(t, v.run)
				}
				open = append(open, v)
				continue
			}
			k := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			j.commit(t, open[k])
			open = slices.Delete(open, k, k+1)
		}
		for _, v := range open {
			j.commit(t, v)
		}
		if got := j.replay(t); !doc.Equal(got, j.clean) {
			t.Fatalf("replayed:\n%s\nlive:\n%s", show(got), show(j.clean))
		}
		if Redact(j.clean) != any(j.clean) {
			t.Fatalf("a secret is in the context: %s", show(j.clean))
		}
	})
}

// anyOrder sorts the lists of records, whose order is not part of what a step does (a record that was removed and made
// again keeps its place).
func anyOrder(c *doc.Object) *doc.Object {
	c = c.Clone()
	for _, k := range typedLists {
		c.Set(k, slices.SortedFunc(slices.Values(c.Arr(k)), func(a, b any) int {
			return strings.Compare(doc.Canonical(a), doc.Canonical(b))
		}))
	}
	return c
}

// A step that ran alone leaves exactly what it saw, secrets and the order of its lists included.
func TestAStepThatRunsAloneCommitsWhatItSaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := newJournalled()
		for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
			v := j.open(fmt.Sprint("s", i))
			for range rapid.IntRange(0, 5).Draw(t, "writes") {
				j.write(t, v.run)
			}
			d := j.commit(t, v)
			if len(d.overwrites) > 0 {
				t.Fatalf("a step that ran alone overwrote %v", d.overwrites)
			}
			live := j.hidden.lay(j.clean)
			if saw := v.run.Context(); !identical(anyOrder(live.(*doc.Object)), anyOrder(saw)) {
				t.Fatalf("committed:\n%s\nthe step saw:\n%s", show(live), show(saw))
			}
		}
	})
}

// Steps that write to different places give the same context in any order, but for the order of what they append.
func TestApartStepsCommute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "steps")
		order := rapid.Permutation(seq(n)).Draw(t, "order")
		run := func(order []int) *doc.Object {
			j := newJournalled()
			views := make([]openView, n)
			for i := range views {
				views[i] = j.open(fmt.Sprint("s", i))
				views[i].run.Set(doc.Int(i), "verifications", fmt.Sprint("v", i), "score")
				views[i].run.Set(&doc.Object{}, "shared")
				views[i].run.Append(doc.Int(i), "verifications", fmt.Sprint("v", i), "results")
			}
			for _, i := range order {
				j.commit(t, views[i])
			}
			return j.clean
		}
		if a, b := run(seq(n)), run(order); !doc.Equal(a, b) {
			t.Fatalf("in order:\n%s\nin %v:\n%s", show(a), order, show(b))
		}
	})
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// TestMergeRules pins what happens when two steps touch the same place.
func TestMergeRules(t *testing.T) {
	base := `{"n": 1, "list": [{"id": 1}, {"id": 2}, {"id": 3}], "map": {"x": 1}}`
	for _, c := range []struct {
		name        string
		first, then func(*Run)
		want        string
		overwrites  int
	}{
		{"the later scalar wins", func(r *Run) { r.Set(doc.Int(2), "n") }, func(r *Run) { r.Set(doc.Int(3), "n") },
			`{"n": 3, "list": [{"id": 1}, {"id": 2}, {"id": 3}], "map": {"x": 1}}`, 1},
		{"the same value twice is no overwrite", func(r *Run) { r.Set(doc.Int(2), "n") }, func(r *Run) { r.Set(doc.Int(2), "n") },
			`{"n": 2, "list": [{"id": 1}, {"id": 2}, {"id": 3}], "map": {"x": 1}}`, 0},
		{"both append", func(r *Run) { r.Append(doc.Of("id", doc.Int(4)), "list") }, func(r *Run) { r.Append(doc.Of("id", doc.Int(5)), "list") },
			`{"n": 1, "list": [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}, {"id": 5}], "map": {"x": 1}}`, 0},
		{"equal items collapse", func(r *Run) { r.Append(doc.Of("id", doc.Int(4)), "list") }, func(r *Run) { r.Append(doc.Of("id", doc.Int(4)), "list") },
			`{"n": 1, "list": [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}], "map": {"x": 1}}`, 0},
		{"an edit beside an append", func(r *Run) { r.Append(doc.Of("id", doc.Int(4)), "list") }, func(r *Run) {
			r.Set([]any{doc.Of("id", doc.Int(1)), doc.Of("id", doc.Int(20))}, "list")
		}, `{"n": 1, "list": [{"id": 1}, {"id": 20}, {"id": 4}], "map": {"x": 1}}`, 0},
		{"a new empty map does not empty one", func(r *Run) { r.Set(doc.Int(1), "new", "k") }, func(r *Run) { r.Set(&doc.Object{}, "new") },
			`{"n": 1, "list": [{"id": 1}, {"id": 2}, {"id": 3}], "map": {"x": 1}, "new": {"k": 1}}`, 0},
		{"removing a map spares what came meanwhile", func(r *Run) { r.Set(doc.Int(2), "map", "y") }, func(r *Run) { r.Unset("map") },
			`{"n": 1, "list": [{"id": 1}, {"id": 2}, {"id": 3}], "map": {"y": 2}}`, 0},
		{"true is not 1", func(r *Run) {}, func(r *Run) { r.Set(true, "n") },
			`{"n": true, "list": [{"id": 1}, {"id": 2}, {"id": 3}], "map": {"x": 1}}`, 0},
		{"a key with a dot", func(r *Run) { r.Set(doc.Int(1), "map", "a") }, func(r *Run) { r.Set(doc.Int(2), "map", "b.c") },
			`{"n": 1, "list": [{"id": 1}, {"id": 2}, {"id": 3}], "map": {"x": 1, "a": 1, "b.c": 2}}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := &execution{}
			if err := x.seed(NewContext().Set("metadata", parse(t, base))); err != nil {
				t.Fatal(err)
			}
			a, b := NewRun("a", "do", x.live, nil, nil), NewRun("b", "do", x.live, nil, nil)
			c.first(a)
			c.then(b)
			da, _ := rebase(diff(x.live, a.Context()), x.clean, x.clean)
			mid := da.apply(x.clean)
			db, _ := rebase(diff(x.live, b.Context()), x.clean, mid)
			after := db.apply(mid)
			if got := after.Obj("metadata"); !identical(got, parse(t, c.want)) {
				t.Errorf("got %s", show(got))
			}
			if len(db.overwrites) != c.overwrites {
				t.Errorf("overwrites %v, want %d", db.overwrites, c.overwrites)
			}
			// The stored form leads to the same.
			back, err := decodeDelta(db.encode(after))
			if err != nil || !doc.Equal(back.apply(mid), after) {
				t.Errorf("the row leads elsewhere: %v, %s", err, show(db.encode(after)))
			}
		})
	}
}

func TestUnionKnowsEnvs(t *testing.T) {
	env := func(id, note string) any { return doc.Of("instance_id", id, "note", note) }
	got := union("deployed_envs", []any{env("a", "old"), env("b", "old")}, []any{env("a", "new"), env("c", "new")})
	if want := []any{env("a", "old"), env("b", "old"), env("c", "new")}; !doc.Equal(got, want) {
		t.Errorf("normal: %s", show(got))
	}
}

func BenchmarkUnion(b *testing.B) {
	list := func(from int) (out []any) {
		for i := range 3000 {
			out = append(out, doc.Of("id", doc.Int(from+i), "text", "row"))
		}
		return out
	}
	have, more := list(0), list(3000)
	for b.Loop() {
		if len(union("", have, more)) != 6000 {
			b.Fatal("lost some")
		}
	}
}
