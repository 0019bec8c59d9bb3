package task

import (
	"slices"

	"agentenv/store/doc"
)

// Scores returns the numeric scores of a context's verifications, in the order they were recorded, each under the id of
// the step whose verifier_id is its key, else under the key. t is the task as it ran (with its seed put in); nil is allowed.
func Scores(t *Task, context *doc.Object) []Score {
	labels := map[string]string{}
	if t != nil {
		for _, s := range t.Steps {
			if id := s.Fields.Str("verifier_id"); id != "" && (s.Kind == nil || s.Kind.IsVerifier) {
				labels[id] = s.ID
			}
		}
	}
	var all []Score
	verifications := context.Obj("metadata").Obj("verifications")
	for _, id := range verifications.Keys() {
		n, ok := verifications.Obj(id).Value("score").(doc.Number)
		if !ok {
			continue
		}
		label := id
		if step, ok := labels[id]; ok {
			label = step
		}
		all = append(all, Score{Label: label, Value: n.Float64()})
	}
	return all
}

// Models returns the distinct models of metadata.models by role, sorted; a step that left the choice to its agent adds none.
func Models(context *doc.Object) map[string][]string {
	all := map[string][]string{}
	models := context.Obj("metadata").Obj("models")
	for _, role := range models.Keys() {
		bySteps := models.Obj(role)
		for _, step := range bySteps.Keys() {
			if m := bySteps.Str(step); m != "" && !slices.Contains(all[role], m) {
				all[role] = append(all[role], m)
			}
		}
		slices.Sort(all[role])
	}
	return all
}
