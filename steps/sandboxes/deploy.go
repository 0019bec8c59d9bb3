// Package sandboxes holds the steps that make and end bare sandboxes.
package sandboxes

import (
	"cmp"
	"context"
	"math"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

// Deps is what these steps act with.
type Deps struct {
	Sandboxes *sandbox.Manager
	// Drain saves what the agents in a sandbox hold for a run with this context, before the sandbox ends; nil = nothing.
	Drain func(ctx context.Context, recorded *doc.Object, sandboxID string)
}

// Types returns the step types of this package.
func Types(d Deps) []*task.StepType {
	return []*task.StepType{deployType(d), teardownType(d)}
}

func deployType(d Deps) *task.StepType {
	return &task.StepType{
		Name:    "deploy_sandbox",
		Summary: "Start a bare sandbox that later steps act on by its name",
		Family:  "sandboxes",
		Doc: "In `vm` mode later steps act on the sandbox's host. In `container` mode they act in the container of `image`, whether the " +
			"provider's sandbox is that container or a host with the container beside it. `image` may name a `docker_image` artifact of the " +
			"bundle: it is built before the run. The container is kept alive when the image's own command ends.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			{Name: "sandbox_name", Kind: task.String, Required: true, Loose: true, Doc: "name the other steps use; unique in the run"},
			{Name: "sandbox_mode", Kind: task.String, Required: true, Enum: []string{"vm", "container"}, Doc: "a bare machine, or a container of an image"},
			{Name: "image", Kind: task.String, Loose: true, Doc: "container mode, required: an image reference, or the name of a docker_image artifact of the bundle"},
			{Name: "cpu", Kind: task.NumberKind, Loose: true, Default: doc.Float(1), Doc: "cores"},
			{Name: "memory_mb", Kind: task.Integer, Loose: true, Default: doc.Int(8192), Doc: "memory in MiB"},
			{Name: "disk_size_gb", Kind: task.NumberKind, Loose: true, Default: doc.Int(10), Doc: "disk in GB"},
			{Name: "ttl_seconds", Kind: task.Integer, Loose: true, Default: doc.Int(7200), Doc: "time to live, recorded with the sandbox; `sandbox prune` removes what has outlived it"},
			{Name: "exposed_ports", Kind: task.List, Items: task.Integer, Loose: true, Doc: "vm mode: ports to publish"},
			{Name: "boot_mode", Kind: task.String, Loose: true, Doc: "vm mode, for providers that take one"},
			{Name: "port", Kind: task.Integer, Loose: true, Doc: "container mode, required: the container port to publish"},
			{Name: "env_vars", Kind: task.ObjectKind, Items: task.String, Loose: true, Doc: "container mode: environment of the container"},
			{Name: "sandbox_type", Kind: task.String, User: true, Doc: "provider, or several separated by commas (the next takes over when one fails)"},
			{Name: "metadata", Kind: task.ObjectKind, Default: doc.Of(), Doc: "`metadata.attribution`: tags for the provider"},
			{Name: "network_policy", Kind: task.ObjectKind, Doc: "what the sandbox may reach: `{\"mode\": \"allow_all\"}`, or `allowlist` with allow_hosts and allow_cidrs"},
		},
		Given: given,
		Parse: func(id string, f *doc.Object) (task.Action, *doc.Object, error) {
			a := &deploy{deps: d, fields: f}
			policy, err := sandbox.ParsePolicy(f.Value("network_policy"))
			if err != nil {
				return nil, nil, err
			}
			a.policy = policy
			stored := f.Clone()
			if policy != nil {
				stored.Set("network_policy", policy.Document())
			}
			if a.spec, err = specOf(f); err != nil {
				return nil, nil, err
			}
			return a, stored, nil
		},
		Check: func(s *task.Step) []string {
			a, _ := s.Action.(*deploy)
			if a == nil || a.spec.Mode != sandbox.Container {
				return nil
			}
			if a.spec.Image == "" || a.spec.Port == 0 {
				return []string{"container-mode sandbox requires `image` and `port`"}
			}
			return nil
		},
		Deploys: func(s *task.Step) []task.Deploy {
			return []task.Deploy{{What: "sandbox", Provider: s.Fields.Str("sandbox_type"), Mode: s.Fields.Str("sandbox_mode"),
				Image: s.Fields.Str("image"), ImageField: "image"}}
		},
	}
}

type deploy struct {
	deps   Deps
	fields *doc.Object
	spec   sandbox.Spec
	policy *sandbox.NetworkPolicy
}

const (
	maxPort = 65535
	// unusedPort is published for a container whose stored task says port 0: nobody listens there, as nobody can on 0.
	unusedPort = 1
)

// given refuses amounts and ports that are none, and an empty name.
func given(f *doc.Object) error {
	if f.Str("sandbox_name") == "" {
		return fault.New(fault.Invalid, "sandbox_name must not be empty")
	}
	for _, key := range []string{"cpu", "memory_mb", "disk_size_gb", "ttl_seconds"} {
		if amount(f, key) == 0 {
			return fault.New(fault.Invalid, "%s must be greater than 0, not %v", key, f.Value(key))
		}
	}
	if f.Str("sandbox_mode") == string(sandbox.VM) {
		for _, p := range f.Arr("exposed_ports") {
			if port, ok := portOf(p); !ok || port == 0 {
				return fault.New(fault.Invalid, "exposed_ports holds %v; a port is between 1 and %d", p, maxPort)
			}
		}
	} else if v := f.Value("port"); v != nil {
		if port, ok := portOf(v); !ok || port == 0 {
			return fault.New(fault.Invalid, "port is %v; a port is between 1 and %d", v, maxPort)
		}
	}
	return nil
}

// specOf reads the fields. Of a stored task they may hold anything: an amount that is none stands for the default, and what the
// sandbox's mode has no use for is passed over. boot_mode is kept in the document alone: no provider takes one, and none fails for it.
func specOf(f *doc.Object) (sandbox.Spec, error) {
	s := sandbox.Spec{Mode: sandbox.Mode(f.Str("sandbox_mode")), CPU: amount(f, "cpu"), DiskGB: amount(f, "disk_size_gb"),
		MemoryMB: int(amount(f, "memory_mb")), TTL: time.Duration(amount(f, "ttl_seconds") * float64(time.Second))}
	s.Name, _ = task.Adapt(f.Value("sandbox_name"), task.String).(string)
	if s.Image = f.Str("image"); strings.ContainsRune(s.Image, 0) {
		return s, fault.New(fault.Invalid, "image %q holds a NUL byte", s.Image)
	}
	if s.Mode == sandbox.VM {
		s.ExposedPorts = ports(f.Value("exposed_ports"))
		return s, nil
	}
	if v := f.Value("image"); v != nil && s.Image == "" && v != "" {
		return s, fault.New(fault.Invalid, "field \"image\" needs a string, not %s", task.Brief(v))
	}
	if v := f.Value("port"); v != nil {
		port, ok := portOf(v)
		if !ok {
			return s, fault.New(fault.Invalid, "port is %s; a port is between 1 and %d", task.Brief(v), maxPort)
		}
		s.Port = cmp.Or(port, unusedPort)
	}
	var err error
	s.Env, err = envOf(f.Value("env_vars"))
	return s, err
}

// amount returns a number greater than 0, or 0 for the default.
func amount(f *doc.Object, key string) float64 {
	n, _ := task.Adapt(f.Value(key), task.NumberKind).(doc.Number)
	if !n.Finite() {
		return 0
	}
	return min(max(0, n.Float64()), math.MaxInt32)
}

// portOf returns a port from 0, which stands for none.
func portOf(v any) (int, bool) {
	port, ok := doc.Of("v", task.Adapt(v, task.Integer)).Int("v")
	return int(port), ok && port >= 0 && port <= maxPort
}

// ports returns the ports of a list, or the one that stands there alone. What is no port cannot be reached, and is left out.
func ports(v any) (out []int) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, p := range list {
		if port, ok := portOf(p); ok && port > 0 {
			out = append(out, port)
		}
	}
	return out
}

func envOf(v any) (map[string]string, error) {
	vars, ok := v.(*doc.Object)
	if !ok && task.Truthy(v) {
		return nil, fault.New(fault.Invalid, "field \"env_vars\" needs an object of string values, not %s", task.Brief(v))
	}
	if vars.Len() == 0 {
		return nil, nil
	}
	env := map[string]string{}
	for _, k := range vars.Keys() {
		switch value := vars.Value(k).(type) {
		case string:
			env[k] = value
		case nil: // as good as absent
		default:
			return nil, fault.New(fault.Invalid, "field \"env_vars\" needs an object of string values, and %q is %s", k, task.Brief(value))
		}
	}
	return env, nil
}

// Execute makes the sandbox and records it as the step's last effect.
func (a *deploy) Execute(ctx context.Context, r *task.Run) error {
	for _, s := range r.Sandboxes() {
		if s.Name == a.spec.Name {
			return fault.New(fault.Exists, "sandbox %q is already deployed in this run; give it another sandbox_name", a.spec.Name)
		}
	}
	s := a.spec
	s.Owner = sandbox.Owner{Instance: r.Instance, Task: r.TaskID, Step: r.StepID}
	s.Attribution = r.Attribution(a.fields.Obj("metadata"))
	if ttl, ok := r.Override("ttl_seconds").(doc.Number); ok {
		s.TTL = time.Duration(ttl.Float64() * float64(time.Second))
	}
	s.Policy = a.policy
	if over := r.Override("network_policy"); over != nil {
		p, err := sandbox.ParsePolicy(over)
		if err != nil {
			return fault.At(err, "user_overrides")
		}
		s.Policy = p
	}
	provider := a.fields.Str("sandbox_type")
	if over, ok := r.Override("sandbox").(string); ok {
		provider = over
	}
	m, err := a.deps.Sandboxes.Deploy(ctx, provider, s, func(line string) { r.Report(task.Progress{Note: line}) })
	if err != nil {
		return fault.At(err, "deploy_sandbox %q", r.StepID)
	}
	info := m.Info()
	mode := info.Mode
	if s.Mode == sandbox.Container {
		// A provider that hands back the machine beside the container says vm; what was asked for is what holds.
		mode = sandbox.Container
	}
	rec := task.Sandbox{Name: s.Name, ID: info.ID, Mode: string(mode), Type: info.Type, TunnelURLs: info.TunnelURLs, VNCURL: info.VNCURL,
		NetworkPolicy: applied(info).Document()}
	r.Log.Info("sandbox deployed", "sandbox", info.ID, "provider", info.Type, "mode", mode, "image", s.Image)
	if err := r.AddSandbox(rec); err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.TerminateLimit)
		defer cancel()
		if terr := a.deps.Sandboxes.Terminate(end, sandbox.Record{Name: s.Name, ID: info.ID, Type: info.Type, Mode: mode}); terr != nil {
			return fault.At(err, "%s could not be removed (%v)", info.ID, terr)
		}
		return err
	}
	return nil
}

func applied(info sandbox.Info) *sandbox.NetworkPolicy {
	if info.Policy != nil {
		return info.Policy
	}
	return &sandbox.NetworkPolicy{Mode: sandbox.AllowAll}
}

// RecordOf turns a run's record of a sandbox into what the manager takes.
func RecordOf(s task.Sandbox) sandbox.Record {
	return sandbox.Record{Name: s.Name, ID: s.ID, Type: s.Type, Mode: sandbox.Mode(s.Mode)}
}
