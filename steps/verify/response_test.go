package verify

import (
	"strings"
	"testing"

	"agentenv/store/doc"
	"agentenv/task"
)

// TestReplies grades replies that a run recorded.
func TestReplies(t *testing.T) {
	t.Parallel()
	context := task.NewContext()
	context.Set("prompt_responses", []any{
		doc.Of("prompt_id", "one", "response", "Hello World", "response_text", nil, "error_type", nil),
		doc.Of("prompt_id", "parts", "response", "the end", "response_text", "the beginning\nthe end"),
		doc.Of("prompt_id", "none", "response", nil), doc.Of("prompt_id", "failed", "response", "x", "error_type", "timeout"),
	})
	for _, c := range []struct{ fields, score, justification string }{
		{`"prompt_id":"one","criteria":[{"id":"a","type":"response_contains","needles":["Hello","world"],"weight":2}]`, "0", "missing: ['world']"},
		{`"prompt_id":"one","criteria":[{"type":"response_contains","needles":["Hello","World"]}]`, "1", "all needles present"},
		{`"prompt_id":"parts","criteria":[{"type":"response_contains","needles":["beginning"]}]`, "1", "all needles present"},
		{`"prompt_id":"parts","criteria":[{"type":"response_regex_present","pattern":"begin.*end"}]`, "1", "pattern matched"},
		{`"prompt_id":"parts","criteria":[{"type":"response_regex_present","pattern":"begin.*end","flags":[]}]`, "0", "no match in the reply"},
		{`"prompt_id":"one","criteria":[{"type":"response_regex_present","pattern":"hello (?P<w>w)","flags":["I"]}]`, "1", "pattern matched"},
		{`"prompt_id":"one","criteria":[{"type":"response_contains","needles":["Hello"]},{"type":"response_contains","needles":["x"],"weight":3}],"score_aggregator":"weighted_average"`, "0.25", "all needles present"},
		{`"prompt_id":"none","criteria":[{"type":"response_regex_present","pattern":"^$"}]`, "1", "pattern matched"},
		{`"prompt_id":"one","criteria":[]`, "0", ""},
		{`"prompt_id":"failed","criteria":[{"type":"response_contains","needles":["x"]}]`, "0", ""},
	} {
		step, err := parseStep(t, `{"id":"v","type":"agent_prompt_response_verifier","verifier_id":"v",`+c.fields+`}`)
		if err != nil {
			t.Errorf("%s: %v", c.fields, err)
			continue
		}
		run := task.NewRun("v", "agent_prompt_response_verifier", context, nil, nil)
		if err := step.Action.Execute(t.Context(), run); err != nil {
			t.Errorf("%s: %v", c.fields, err)
			continue
		}
		entry := run.Metadata("verifications", "v").(*doc.Object)
		why := ""
		if rows := entry.Arr("results"); len(rows) > 0 {
			why = rows[0].(*doc.Object).Str("justification")
		}
		if got := doc.Canonical(entry.Value("score")); got != c.score || why != c.justification {
			t.Errorf("%s: %s %q", c.fields, got, why)
		}
	}
	run := task.NewRun("v", "", context, nil, nil)
	step, err := parseStep(t, `{"id":"v","type":"agent_prompt_response_verifier","prompt_id":"unknown"}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := step.Action.Execute(t.Context(), run); err == nil || !strings.Contains(err.Error(), "PromptResponse with prompt_id='unknown' not found in context") || run.Metadata("verifications") != nil {
		t.Error(err)
	}
}

func TestRulesThatAreNone(t *testing.T) {
	t.Parallel()
	for criterion, want := range map[string]string{
		`{"type":"response_is"}`: "criterion 0: unknown type 'response_is'", `{"type":"response_contains"}`: "needs needles", `{"type":"response_contains","needles":[]}`: "needs needles",
		`{"type":"response_contains","needles":[5]}`: "must be strings", `{"type":"response_regex_present"}`: "needs a pattern", `{"type":"response_regex_present","pattern":"("}`: "invalid pattern",
		`{"type":"response_regex_present","pattern":"a","flags":["LOUD"]}`: "unknown flag LOUD", `{"type":"response_regex_present","pattern":"a","flags":"I"}`: "flags must be",
	} {
		step, err := parseStep(t, `{"id":"v","type":"agent_prompt_response_verifier","prompt_id":"p","criteria":[`+criterion+`]}`)
		if err == nil { // a stored step fails when it runs
			err = step.Action.Execute(t.Context(), task.NewRun("v", "", nil, nil, nil))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", criterion, err, want)
		}
	}
}
