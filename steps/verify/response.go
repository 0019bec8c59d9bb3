package verify

import (
	"context"
	"fmt"
	"strings"

	"github.com/dlclark/regexp2"

	"agentenv/fault"
	"agentenv/pattern"
	"agentenv/store/doc"
	"agentenv/task"
)

func responseType() *task.StepType {
	return &task.StepType{
		Name:    "agent_prompt_response_verifier",
		Summary: "Check an agent's reply by fixed rules",
		Family:  "verify",
		Doc: "Each criterion makes a row with score 1 or 0. Types: `response_contains` (every string of `needles` is in the reply, case counts) and " +
			"`response_regex_present` (`pattern`, as Python's re module takes it, matches anywhere; `flags` are names such as IGNORECASE, and DOTALL when absent). " +
			"All text of the reply counts. A prompt that ended in an error scores 0.",
		FailsTask: true, Repeatable: true, IsVerifier: true,
		Fields: []task.Field{
			{Name: "prompt_id", Kind: task.String, Required: true, Doc: "prompt whose reply is checked"},
			{Name: "criteria", Kind: task.List, Items: task.ObjectKind, Default: []any{}, Doc: "what is checked, in order"},
			aggregatorField(AllPass),
			verifierField(),
		},
		Given: func(f *doc.Object) error {
			_, err := rulesOf(f.Arr("criteria"))
			return err
		},
		Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) {
			stored, vid := withVerifierID(f)
			return &response{id: vid, prompt: f.Str("prompt_id"), how: f.Str("score_aggregator"), criteria: f.Arr("criteria")}, stored, nil
		},
	}
}

type response struct {
	id, prompt, how string
	criteria        []any
}

// rule is one criterion, ready to be asked.
type rule struct {
	row     *doc.Object
	needles []string
	re      *regexp2.Regexp
}

// rulesOf reads criteria; the first that is wrong is an Invalid error with its index.
func rulesOf(list []any) ([]rule, error) {
	var out []rule
	for i, v := range list {
		c, _ := v.(*doc.Object)
		bad := func(format string, args ...any) error {
			return fault.New(fault.Invalid, "criterion %d: %s", i, fmt.Sprintf(format, args...)).WithClass("ValueError")
		}
		k := rule{row: c}
		switch kind := c.Str("type"); kind {
		case "response_contains":
			for _, n := range c.Arr("needles") {
				s, ok := n.(string)
				if !ok {
					return nil, bad("needles must be strings, not %s", task.Brief(n))
				}
				k.needles = append(k.needles, s)
			}
			if len(k.needles) == 0 {
				return nil, bad("response_contains needs needles, a list of strings that is not empty")
			}
		case "response_regex_present":
			text := c.Str("pattern")
			if text == "" {
				return nil, bad("response_regex_present needs a pattern")
			}
			flags, err := flagNames(c.Value("flags"))
			if err != nil {
				return nil, bad("%s", err)
			}
			if k.re, err = pattern.CompileWith(text, flags...); err != nil {
				return nil, bad("invalid pattern %s: %s", repr(text), pattern.Reason(err))
			}
			k.re.MatchTimeout = matchLimit
		default:
			return nil, bad("unknown type %s; there are response_contains and response_regex_present", repr(c.Value("type")))
		}
		out = append(out, k)
	}
	return out, nil
}

func flagNames(v any) ([]string, error) {
	if v == nil {
		return []string{"DOTALL"}, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fault.New(fault.Invalid, "flags must be a list of names, not %s", task.Brief(v))
	}
	var out []string
	for _, n := range list {
		s, ok := n.(string)
		if !ok {
			return nil, fault.New(fault.Invalid, "flags must be a list of names, and one is %s", task.Brief(n))
		}
		out = append(out, s)
	}
	return out, nil
}

// Execute records the rows and the score.
func (a *response) Execute(_ context.Context, r *task.Run) error {
	rules, err := rulesOf(a.criteria)
	if err != nil {
		return fault.At(err, "agent_prompt_response_verifier %q", r.StepID)
	}
	given, err := reply(r, a.prompt)
	if err != nil {
		return fault.At(err, "agent_prompt_response_verifier %q", r.StepID)
	}
	if kind := given.Str("error_type"); kind != "" {
		row := doc.Of("id", "prompt_error", "score", doc.Int(0), "result", false, "message", "the prompt ended with error_type="+kind)
		r.Set(doc.Of("results", []any{row}, "score", doc.Float(0)), "verifications", a.id)
		return nil
	}
	text := given.Str("response")
	if all := given.Str("response_text"); all != "" {
		text = all
	}
	var rows []*doc.Object
	for i, k := range rules {
		pass, why := k.ask(text)
		score := 0.0
		if pass {
			score = 1
		}
		rows = append(rows, k.row.Clone().Set("criterion_index", doc.Int(int64(i))).Set("score", doc.Float(score)).Set("result", pass).Set("justification", why))
	}
	if err := checkWeights(a.how, rows); err != nil {
		return fault.At(err, "agent_prompt_response_verifier %q", r.StepID)
	}
	results := make([]any, len(rows))
	for i, row := range rows {
		results[i] = row
	}
	r.Set(doc.Of("results", results, "score", doc.Float(Aggregate(a.how, rows))), "verifications", a.id)
	return nil
}

// reply returns what a prompt's agent answered.
func reply(r *task.Run, prompt string) (*doc.Object, error) {
	for _, p := range r.PromptResponses() {
		if p.Str("prompt_id") == prompt {
			return p, nil
		}
	}
	return nil, fault.New(fault.Invalid, "PromptResponse with prompt_id=%s not found in context (is a depends_on missing?)", repr(prompt)).WithClass("ValueError")
}

func (k rule) ask(text string) (pass bool, why string) {
	if k.re == nil {
		var missing []string
		for _, n := range k.needles {
			if !strings.Contains(text, n) {
				missing = append(missing, n)
			}
		}
		if len(missing) > 0 {
			return false, "missing: " + quoted(missing)
		}
		return true, "all needles present"
	}
	found, err := k.re.MatchString(text)
	switch {
	case err != nil:
		return false, fmt.Sprintf("no match: the search took longer than %s", matchLimit)
	case !found:
		return false, "no match in the reply"
	}
	return true, "pattern matched"
}
