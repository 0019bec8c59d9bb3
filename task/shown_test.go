package task_test

import (
	"testing"

	"agentenv/store/doc"
	"agentenv/task"
)

// TestShown leaves out what is as good as a password, and nothing of what it was given.
func TestShown(t *testing.T) {
	t.Parallel()
	row := doc.Of("agent_name", "a", "staging_url", "https://a/ext/staging/secret", "roots", []any{"/work"})
	plain := doc.Of("context", doc.Of("metadata", doc.Of("kept", []any{"x", doc.Of("n", doc.Int(1))})))
	record := doc.Of("context", doc.Of("metadata", doc.Of("agent_changelog", []any{row, "odd", nil}, "litellm_api_key", "sk-1")), "n", nil)
	before := doc.Canonical(record)
	if got := doc.Canonical(task.Shown(record)); got != `{"context":{"metadata":{"agent_changelog":[{"agent_name":"a","roots":["/work"]},"odd",null]}},"n":null}` {
		t.Errorf("shown is %s", got)
	}
	if doc.Canonical(record) != before {
		t.Error("the record itself was changed")
	}
	if task.Shown(plain) != any(plain) || task.Shown(nil) != nil || task.Shown((*doc.Object)(nil)) != any((*doc.Object)(nil)) {
		t.Error("what holds nothing to hide is not returned as it is")
	}
}
