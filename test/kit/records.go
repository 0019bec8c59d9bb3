package kit

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the driver behind database/sql
)

// Parse reads a JSON document into plain Go values.
func Parse(t testing.TB, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("no JSON document: %v\n%s", err, text)
	}
	return v
}

// At follows keys (string) and positions (int) into what Parse returned; what is not there is nil.
func At(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p < 0 || p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

// Select returns the first column of what a query finds in the user's own documents, which must be there.
func (u *User) Select(query string, args ...any) []string {
	u.T.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(u.State, "document_store", "local.db")+"?mode=ro")
	if err != nil {
		u.T.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(u.T.Context(), query, args...)
	if err != nil {
		u.T.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			u.T.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		u.T.Fatal(err)
	}
	return out
}
