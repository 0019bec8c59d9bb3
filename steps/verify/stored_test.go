package verify

import (
	"fmt"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// TestStoredVerifiers grades by steps that another program stored without a look at their fields: what it could not grade by,
// no row passes by.
func TestStoredVerifiers(t *testing.T) {
	m, info := box(t)
	reg, err := task.NewRegistry(Types(Deps{})...)
	if err != nil {
		t.Fatal(err)
	}
	const rows = `"criteria":[{"type":"probe_file_exists","paths":["h.txt"]},{"type":"probe_file_exists","paths":["/app/h.txt"]},{"type":"bash_cmd_succeeds","bash_cmd":"true"},{"type":"other"}]`
	for _, c := range []struct{ field, results, why string }{ // why: of the first row that fails
		{`"agent_name":""`, "true true true", ""}, {`"shell_timeout_seconds":null`, "true true true", ""}, {`"shell_timeout_seconds":true`, "true true true", ""},
		{`"shell_timeout_seconds":"120"`, "false false false", "`shell_timeout_seconds` must be a number, but is of the type string"},
		{`"shell_timeout_seconds":[]`, "false false false", "`shell_timeout_seconds` must be a number"}, {`"shell_timeout_seconds":0`, "false false false", "timed out after 0s"},
		{`"shell_timeout_seconds":-1`, "false false false", "timed out after -1s"}, {`"shell_timeout_seconds":false`, "false false false", "timed out after 0s"},
		{`"base_dir":null`, "false true true", "Missing: ['h.txt']"}, {`"base_dir":[]`, "false true true", "Missing"}, {`"base_dir":5`, "false true false", "Missing"},
	} {
		read := func(o task.ParseOptions) (*task.Step, error) {
			tk, err := reg.ParseText("t", []byte(`[{"id":"v","type":"verify_sandbox","sandbox_name":"box","verifier_id":"v",`+rows+`,`+c.field+`}]`), o)
			if err != nil {
				return nil, err
			}
			return tk.Steps[0], tk.Steps[0].Problem
		}
		s, err := read(task.ParseOptions{Stored: true})
		if err != nil {
			t.Errorf("%s: %v", c.field, err)
			continue
		}
		out, err := verifiedStep(t, m, info.ID, s)
		if err != nil {
			t.Errorf("%s: %v", c.field, err)
			continue
		}
		got, why := "", ""
		for _, v := range out.Arr("results")[:3] {
			row := v.(*doc.Object)
			got += fmt.Sprint(" ", row.Value("result"))
			if why == "" && row.Value("result") == false {
				why = row.Str("justification")
			}
		}
		if strings.TrimSpace(got) != c.results || !strings.Contains(why, c.why) {
			t.Errorf("%s: rows%s, want %s; %s", c.field, got, c.results, why)
		}
		if _, err := read(task.ParseOptions{}); c.why != "" && !strings.Contains(c.field, "null") && !fault.Is(err, fault.Invalid) {
			t.Errorf("a file with %s: %v", c.field, err)
		}
	}
}
