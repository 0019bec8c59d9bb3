package sandboxes

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/task"
)

func parseStep(t *testing.T, text string, o task.ParseOptions) (*task.Step, error) {
	t.Helper()
	reg, err := task.NewRegistry(Types(Deps{})...)
	if err != nil {
		t.Fatal(err)
	}
	tk, err := reg.ParseText("t", []byte("["+text+"]"), o)
	if err != nil {
		return nil, err
	}
	return tk.Steps[0], tk.Steps[0].Problem
}

// TestStoredDeploys reads deploy steps that other programs stored without a look at their fields.
func TestStoredDeploys(t *testing.T) {
	const vm, container = `"sandbox_mode":"vm"`, `"sandbox_mode":"container","image":"i","port":80`
	sound := map[string]sandbox.Spec{
		vm:        {Name: "box", Mode: sandbox.VM, CPU: 1, MemoryMB: 8192, DiskGB: 10, TTL: 2 * time.Hour},
		container: {Name: "box", Mode: sandbox.Container, Image: "i", Port: 80, CPU: 1, MemoryMB: 8192, DiskGB: 10, TTL: 2 * time.Hour},
	}
	type change func(*sandbox.Spec)
	same := change(func(*sandbox.Spec) {})
	cpu := func(n float64) change { return func(s *sandbox.Spec) { s.CPU = n } }
	memory := func(n int) change { return func(s *sandbox.Spec) { s.MemoryMB = n } }
	ttl := func(d time.Duration) change { return func(s *sandbox.Spec) { s.TTL = d } }
	name := func(n string) change { return func(s *sandbox.Spec) { s.Name = n } }
	image := func(n string) change { return func(s *sandbox.Spec) { s.Image = n } }
	port := func(n int) change { return func(s *sandbox.Spec) { s.Port = n } }
	exposed := func(n ...int) change { return func(s *sandbox.Spec) { s.ExposedPorts = n } }
	env := func(m map[string]string) change { return func(s *sandbox.Spec) { s.Env = m } }
	for _, c := range []struct {
		of, field string
		changed   change // of the sound step's spec, where 0 is the provider's own default; nil: it cannot run
		problem   string
	}{
		{vm, `"cpu":"2"`, cpu(2), ""}, {vm, `"cpu":0`, cpu(0), ""}, {vm, `"cpu":-1`, cpu(0), ""}, {vm, `"cpu":null`, cpu(0), ""}, {vm, `"cpu":"x"`, cpu(0), ""}, {vm, `"cpu":[1]`, cpu(0), ""},
		{vm, `"memory_mb":"512"`, memory(512), ""}, {vm, `"memory_mb":600.5`, memory(600), ""}, {vm, `"memory_mb":0`, memory(0), ""},
		{vm, `"ttl_seconds":"60"`, ttl(time.Minute), ""}, {vm, `"ttl_seconds":0`, ttl(0), ""}, {vm, `"ttl_seconds":1.5`, ttl(1500 * time.Millisecond), ""}, {vm, `"ttl_seconds":"x"`, ttl(0), ""},
		{vm, `"sandbox_name":""`, name(""), ""}, {vm, `"sandbox_name":null`, name(""), ""}, {vm, `"sandbox_name":5`, name("5"), ""},
		{vm, `"exposed_ports":["8080",9,0,"x",70000]`, exposed(8080, 9), ""}, {vm, `"exposed_ports":"8080"`, exposed(8080), ""}, {vm, `"exposed_ports":{}`, same, ""},
		{vm, `"port":"x"`, same, ""}, {vm, `"env_vars":"x"`, same, ""}, {vm, `"image":5`, same, ""}, {vm, `"image":"i"`, image("i"), ""}, {vm, `"boot_mode":5`, same, ""}, {vm, `"network_policy":""`, same, ""},
		{container, `"port":"8080"`, port(8080), ""}, {container, `"port":0`, port(unusedPort), ""}, {container, `"exposed_ports":8`, same, ""},
		{container, `"env_vars":[]`, same, ""}, {container, `"env_vars":{"A":null,"B":"b"}`, env(map[string]string{"B": "b"}), ""},
		{container, `"port":"x"`, nil, `port is string "x"; a port is between 1 and 65535`}, {container, `"port":-1`, nil, `port is`}, {container, `"port":70000`, nil, `port is`},
		{container, `"env_vars":"x"`, nil, `field "env_vars" needs an object of string values, not string "x"`}, {container, `"env_vars":{"A":1}`, nil, `field "env_vars" needs an object of string values, and "A" is number 1`},
		{container, `"image":5`, nil, `field "image" needs a string, not number 5`}, {vm, `"sandbox_mode":"pod"`, nil, `field "sandbox_mode" needs one of`}, {vm, `"sandbox_type":["local"]`, nil, `field "sandbox_type"`},
		{vm, `"metadata":"x"`, nil, `field "metadata"`}, {vm, `"network_policy":"x"`, nil, `field "network_policy"`},
	} {
		text := `{"id":"d","type":"deploy_sandbox","sandbox_name":"box",` + c.of + `,` + c.field + `}`
		s, err := parseStep(t, text, task.ParseOptions{Stored: true})
		switch {
		case c.changed == nil:
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: %v, want %s", c.field, err, c.problem)
			}
		case err != nil:
			t.Errorf("%s: %v", c.field, err)
		default:
			want := sound[c.of]
			c.changed(&want)
			if d := cmp.Diff(want, s.Action.(*deploy).spec); d != "" {
				t.Errorf("%s:\n%s", c.field, d)
			}
		}
	}
}

// TestGivenDeploys holds that a file is told of what a stored task is forgiven, where the sandbox's mode has a use for it.
func TestGivenDeploys(t *testing.T) {
	const vm, container = `"sandbox_mode":"vm"`, `"sandbox_mode":"container","image":"i"`
	for fields, want := range map[string]string{vm + `,"cpu":0`: "cpu must be greater than 0", vm + `,"cpu":"1"`: `field "cpu" needs a number`, vm + `,"memory_mb":0`: "memory_mb must be",
		vm + `,"disk_size_gb":-1`: "disk_size_gb must be", vm + `,"ttl_seconds":-1`: "ttl_seconds must be", vm + `,"sandbox_name":""`: "sandbox_name must not be empty",
		vm + `,"sandbox_name":null`: `field "sandbox_name" is missing`, vm + `,"exposed_ports":[0]`: "exposed_ports holds 0", vm + `,"exposed_ports":["1"]`: `field "exposed_ports" needs`,
		container + `,"port":0`: "port is 0", container + `,"port":70000`: "port is 70000", container + `,"port":"80"`: `field "port" needs an integer`,
		container + `,"env_vars":{"A":null}`: `field "env_vars" needs`, vm + `,"image":5`: `field "image" needs a string`, vm + `,"port":0`: "", container + `,"exposed_ports":[0],"port":80`: ""} {
		if !strings.Contains(fields, "sandbox_name") {
			fields += `,"sandbox_name":"box"`
		}
		_, err := parseStep(t, `{"id":"d","type":"deploy_sandbox",`+fields+`}`, task.ParseOptions{Where: "tasks/t.json"})
		if want == "" && err == nil {
			continue
		}
		if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), `tasks/t.json: step "d" (position 0): `+want) || want == "" {
			t.Errorf("%s: %v, want %q", fields, err, want)
		}
	}
}

func TestStoredTeardowns(t *testing.T) {
	for field, want := range map[string][]string{`"sandbox_names":[5,"a"]`: {"5", "a"}, `"sandbox_names":[null]`: nil} {
		s, err := parseStep(t, `{"id":"d","type":"teardown_sandboxes",`+field+`}`, task.ParseOptions{Stored: true})
		if err != nil || !cmp.Equal(s.Action.(*teardown).sandboxes, want) {
			t.Errorf("%s: %v, %v", field, s, err)
		}
		if _, err = parseStep(t, `{"id":"d","type":"teardown_sandboxes",`+field+`}`, task.ParseOptions{}); !fault.Is(err, fault.Invalid) {
			t.Errorf("a file with %s: %v", field, err)
		}
	}
	if _, err := parseStep(t, `{"id":"d","type":"teardown_sandboxes","sandbox_names":5}`, task.ParseOptions{Stored: true}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a list that is none: %v", err)
	}
}

func FuzzStoredDeploy(f *testing.F) {
	for _, s := range []string{`"cpu":"1e400","port":[]`, `"sandbox_name":{},"env_vars":{"A":[]}`, `"exposed_ports":[[1],"x",1e9],"image":true`} {
		f.Add(s)
	}
	reg, err := task.NewRegistry(Types(Deps{})...)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, fields string) {
		for _, mode := range []string{"vm", "container"} {
			tk, err := reg.ParseText("t", []byte(`[{"id":"d","type":"deploy_sandbox","sandbox_mode":"`+mode+`",`+fields+`}]`), task.ParseOptions{Stored: true})
			if err != nil || tk.Steps[0].Problem != nil {
				continue
			}
			if a, ok := tk.Steps[0].Action.(*deploy); ok && (a.spec.CPU < 0 || a.spec.MemoryMB < 0 || a.spec.TTL < 0 || a.spec.Port < 0 || a.spec.Port > maxPort) {
				t.Errorf("%s: %+v", fields, a.spec)
			}
		}
	})
}
