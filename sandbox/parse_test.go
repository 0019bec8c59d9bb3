package sandbox_test

import (
	"testing"

	"agentenv/store/doc"
)

func parse(t *testing.T, text string) any {
	t.Helper()
	v, err := doc.Parse([]byte(text), doc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}
