//go:build integration

package e2e_test

import (
	"database/sql"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver behind database/sql

	storedoc "agentenv/store/doc"
)

// rowsWhole checks the journal of a run ("" = the only one): numbered without a gap, each row whole, and the record that they fold
// into shows at least the given steps as done.
func (k *kit) rowsWhole(instance string, done ...string) {
	k.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(k.state, "document_store", "local.db")+"?mode=ro")
	if err != nil {
		k.t.Fatal(err)
	}
	defer db.Close()
	if instance == "" {
		if err := db.QueryRow(`SELECT json_extract(doc, '$.instance_id') FROM docs_task_instances`).Scan(&instance); err != nil {
			k.t.Fatalf("the run's record: %v", err)
		}
	}
	rows, err := db.Query(`SELECT json_extract(doc, '$.seq'), json_extract(doc, '$.step_id'), doc FROM docs_task_step_journal
		WHERE json_extract(doc, '$.instance_id') = ? ORDER BY 1`, instance)
	if err != nil {
		k.t.Fatal(err)
	}
	defer rows.Close()
	seen := map[string]bool{}
	n := 0
	for rows.Next() {
		var seq int
		var step, text string
		if err := rows.Scan(&seq, &step, &text); err != nil {
			k.t.Fatal(err)
		}
		n++
		d, err := storedoc.Parse([]byte(text), storedoc.Options{})
		if err != nil || seq != n {
			k.t.Errorf("row %d of %s: number %d, %v", n, instance, seq, err)
		} else if o, ok := d.(*storedoc.Object); !ok || o.Obj("ops") == nil || o.Str("status") == "" {
			k.t.Errorf("row %d of %s: %s", n, instance, text)
		}
		seen[step] = true
	}
	if err := rows.Err(); err != nil {
		k.t.Fatal(err)
	}
	record := k.instance(instance)
	var recorded []string
	for i := range record.at("completed_steps").len() {
		recorded = append(recorded, record.str("completed_steps", i, "step_id"))
	}
	for _, id := range done {
		there := false
		for _, r := range recorded {
			there = there || r == id
		}
		if !seen[id] || !there {
			k.t.Errorf("step %s ran: row there %v, in the record %v", id, seen[id], recorded)
		}
	}
	if record.at("context", "deployed_sandboxes").len() != 1 {
		k.t.Errorf("the record holds %s", record.at("context", "deployed_sandboxes"))
	}
}

// statuses returns how the kit's runs ended, in the order of their ids.
func (k *kit) statuses() []string {
	k.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(k.state, "document_store", "local.db")+"?mode=ro")
	if err != nil {
		k.t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT json_extract(doc, '$.status') FROM docs_task_instances ORDER BY json_extract(doc, '$.instance_id')`)
	if err != nil {
		k.t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			k.t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		k.t.Fatal(err)
	}
	return out
}
