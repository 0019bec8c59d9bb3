package code

import (
	"strings"
	"testing"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

func TestChoosingTheEntry(t *testing.T) {
	for _, c := range []struct{ members, file, want string }{
		{"a.py", "", "a.py"}, {"a.py b.py run.py", "", "run.py"}, {"a.py x/run.py", "", "x/run.py"}, {"a.py b.py data.json", "b.py", "b.py"},
		{"sub/os/run.py data.csv", "", "sub/os/run.py"}, {"sub/runner.py", "", "sub/runner.py"}, {"input.json a.py", "", "a.py"},
		{"a.py b.py", "", "! none is called run.py: a.py, b.py"}, {"a/run.py b/run.py", "", "! ambiguous"}, {"data.csv", "", "! no .py file; it holds data.csv"},
		{"a.py", "b.py", "! no member \"b.py\""}, {"a.py d.txt", "d.txt", "! must end in .py"}, {"runner.py a.py", "", "! needs for itself"},
		{"/abs.py", "", "! no relative paths"}, {"~/x.py", "", "! no relative paths"}, {"a/../b.py", "", "! no relative paths"}, {"", "", "! has no files"},
	} {
		var ms []artifact.Member
		for _, n := range strings.Fields(c.members) {
			ms = append(ms, artifact.Member{Name: n})
		}
		s, err := chooseOf("code", ms, c.file)
		if why, bad := strings.CutPrefix(c.want, "! "); bad {
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), why) {
				t.Errorf("%s (%s): %v, want %q", c.members, c.file, err, why)
			}
		} else if err != nil || s.entry != c.want {
			t.Errorf("%s (%s): %v, %v; want %s", c.members, c.file, s, err, c.want)
		}
	}
}

func parseStep(t *testing.T, fields string) (*task.Step, error) {
	t.Helper()
	reg, err := task.NewRegistry(Types(Deps{})...)
	if err != nil {
		t.Fatal(err)
	}
	tk, err := reg.ParseText("t", []byte(`[{"id":"c","type":"run_code","script_artifact_id":"s",`+fields+`}]`), task.ParseOptions{})
	if err != nil {
		return nil, err
	}
	return tk.Steps[0], nil
}

func TestFields(t *testing.T) {
	for fields, want := range map[string]string{
		`"sandbox_name":"b"`: `"agent_name":null,"args":{},"entrypoint":"run","env_id":null,"result_id":"c","sandbox_name":"b","script_artifact_id":"s","script_artifact_version":null,"script_file":null,"timeout_seconds":600`,
		`"sandbox_name":"b","agent_name":"default-agent","entrypoint":"","timeout_seconds":0`: `"agent_name":null,"args":{},"entrypoint":"run"`,
		`"env_id":"e","agent_name":"x"`: `"agent_name":null,"args":{},"entrypoint":"run","env_id":"e"`,
		`"sandbox_name":" "`:            `"agent_name":"default-agent"`,
	} {
		s, err := parseStep(t, fields)
		if err != nil || !strings.Contains(doc.Canonical(s.Fields), want) {
			t.Errorf("%s: %v, %v; want %s", fields, s, err, want)
		}
	}
	for fields, want := range map[string]string{
		`"sandbox_name":"b","agent_name":"x"`:            "not both",
		`"sandbox_name":"b","env_id":"x"`:                "not both",
		`"sandbox_name":"b","timeout_seconds":-1`:        "negative",
		`"sandbox_name":"b","script_artifact_version":0`: "at least 1",
		`"sandbox_name":"b","args":[]`:                   "args",
	} {
		if _, err := parseStep(t, fields); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", fields, err, want)
		}
	}
}

// TestStoredArgs passes on whatever another program stored as args.
func TestStoredArgs(t *testing.T) {
	reg, err := task.NewRegistry(Types(Deps{})...)
	if err != nil {
		t.Fatal(err)
	}
	for stored, want := range map[string]string{`"x"`: `"x"`, `[1]`: `[1]`, `5`: `5`, `[]`: `{}`, `null`: `{}`, `{"a":1}`: `{"a":1}`} {
		text := `[{"id":"c","type":"run_code","script_artifact_id":"s","sandbox_name":"b","timeout_seconds":"30","args":` + stored + `}]`
		tk, err := reg.ParseText("t", []byte(text), task.ParseOptions{Stored: true})
		if err != nil || tk.Steps[0].Problem != nil {
			t.Errorf("%s: %v", stored, err)
			continue
		}
		if a := tk.Steps[0].Action.(*runCode); doc.Canonical(a.args) != want || a.seconds != 30 || doc.Canonical(tk.Steps[0].Fields.Value("args")) != want {
			t.Errorf("%s: args %s, %v seconds", stored, doc.Canonical(a.args), a.seconds)
		}
	}
}

func TestRunFolder(t *testing.T) {
	box := sandbox.Record{ID: "local-1", Mode: sandbox.VM}
	a, b := runDir(box, "step one/../x"), runDir(box, "code")
	if !strings.HasPrefix(a, "/tmp/agent_env_run_code-local-1/step-") || !strings.HasPrefix(b, "/tmp/agent_env_run_code-local-1/code-") || b == runDir(box, "code") {
		t.Error(a, b)
	}
	box.Mode = sandbox.Container
	if c := runDir(box, "code"); !strings.HasPrefix(c, "/tmp/agent_env_run_code/code-") {
		t.Error(c)
	}
}
