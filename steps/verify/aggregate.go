package verify

import (
	"context"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

func aggregateType() *task.StepType {
	return &task.StepType{
		Name:    "aggregate_verifiers",
		Summary: "Make one score of the rows of other verifiers",
		Family:  "verify",
		Doc: "The rows of the named verifiers are put together (a verifier named twice counts twice), rows marked `skipped` are left out, and " +
			"`score_aggregator` makes one score of them.",
		FailsTask:  true,
		Repeatable: true,
		IsVerifier: true,
		Fields: []task.Field{
			{Name: "verifier_ids", Kind: task.List, Items: task.String, Default: []any{}, Doc: "verifiers whose rows are merged, in order"},
			aggregatorField(WeightedAverage),
			verifierField(),
		},
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			stored, vid := withVerifierID(f)
			a := &aggregate{id: vid, how: f.Str("score_aggregator")}
			for _, v := range f.Arr("verifier_ids") {
				s, _ := v.(string)
				a.sources = append(a.sources, s)
			}
			return a, stored, nil
		},
	}
}

type aggregate struct {
	id, how string
	sources []string
}

// Execute scores the union of the sources' rows.
func (a *aggregate) Execute(ctx context.Context, r *task.Run) error {
	have, _ := r.Metadata("verifications").(*doc.Object)
	var missing []string
	var rows []*doc.Object
	for _, src := range a.sources {
		entry, there := have.Get(src)
		if !there {
			missing = append(missing, src)
			continue
		}
		e, _ := entry.(*doc.Object)
		for _, row := range e.Arr("results") {
			if o, ok := row.(*doc.Object); ok && !task.Truthy(o.Value("skipped")) {
				rows = append(rows, o)
			}
		}
	}
	if len(missing) > 0 {
		available := slices.Sorted(slices.Values(have.Keys()))
		return fault.New(fault.Invalid, "aggregate_verifiers %q: no verifier of this run recorded %s; recorded are: %s (is a depends_on missing?)",
			r.StepID, quoted(missing), quoted(available)).WithClass("RuntimeError")
	}
	if err := checkWeights(a.how, rows); err != nil {
		return fault.At(err, "aggregate_verifiers %q", r.StepID)
	}
	sources := make([]any, len(a.sources))
	for i, s := range a.sources {
		sources[i] = s
	}
	r.Set(doc.Of("score", doc.Float(Aggregate(a.how, rows)), "source_verifier_ids", sources), "verifications", a.id)
	return nil
}

// quoted writes names as readers of records know such lists: ['a', 'b'].
func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = repr(n)
	}
	return "[" + strings.Join(out, ", ") + "]"
}
