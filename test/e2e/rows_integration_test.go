//go:build integration

package e2e_test

import (
	"fmt"
	"slices"

	storedoc "agentenv/store/doc"
)

// rowsWhole checks the journal of a run ("" = the only one): numbered without a gap, each row whole, and the record that they fold
// into shows at least the given steps as done.
func (k *user) rowsWhole(instance string, done ...string) {
	k.T.Helper()
	if instance == "" {
		ids := k.Select(`SELECT json_extract(doc, '$.instance_id') FROM docs_task_instances`)
		if len(ids) != 1 {
			k.T.Fatalf("the runs on record: %v", ids)
		}
		instance = ids[0]
	}
	seen := map[string]bool{}
	for i, text := range k.Select(`SELECT doc FROM docs_task_step_journal WHERE json_extract(doc, '$.instance_id') = ? ORDER BY json_extract(doc, '$.seq')`, instance) {
		d, err := storedoc.Parse([]byte(text), storedoc.Options{})
		o, ok := d.(*storedoc.Object)
		if err != nil || !ok || fmt.Sprint(o.Value("seq")) != fmt.Sprint(i+1) || o.Obj("ops") == nil || o.Str("status") == "" {
			k.T.Errorf("row %d of %s: %v\n%s", i+1, instance, err, text)
			continue
		}
		seen[o.Str("step_id")] = true
	}
	record := k.instance(instance)
	var recorded []string
	for i := range record.at("completed_steps").len() {
		recorded = append(recorded, record.str("completed_steps", i, "step_id"))
	}
	for _, id := range done {
		there := slices.Contains(recorded, id)
		if !seen[id] || !there {
			k.T.Errorf("step %s ran: row there %v, in the record %v", id, seen[id], recorded)
		}
	}
	if record.at("context", "deployed_sandboxes").len() != 1 {
		k.T.Errorf("the record holds %s", record.at("context", "deployed_sandboxes"))
	}
}

// statuses returns how the user's runs ended, in the order of their ids.
func (k *user) statuses() []string {
	k.T.Helper()
	return k.Select(`SELECT json_extract(doc, '$.status') FROM docs_task_instances ORDER BY json_extract(doc, '$.instance_id')`)
}
