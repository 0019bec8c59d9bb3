package agents

import (
	"fmt"
	"slices"
	"strings"

	"agentenv/agent/deploy"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

// site returns the sandbox of the run that the step puts its agent on, nil where it names none.
func (a *deployAgent) site(r *task.Run) (*deploy.Site, error) {
	name := a.fields.Str("sandbox_name")
	if name == "" {
		return nil, nil
	}
	box, err := r.Sandbox(name)
	if err != nil {
		return nil, err
	}
	s := &deploy.Site{Record: sandbox.Record{Name: box.Name, ID: box.ID, Type: box.Type, Mode: sandbox.Mode(box.Mode)}}
	if s.Mode != sandbox.VM {
		return nil, fault.New(fault.Invalid, "%s", notVM(name, box.Mode))
	}
	if err := sandbox.Exposes(name, box.TunnelURLs, deploy.Port); err != nil {
		return nil, err
	}
	var policy any // not a typed nil
	if box.NetworkPolicy != nil {
		policy = box.NetworkPolicy
	}
	if s.Policy, err = sandbox.ParsePolicy(policy); err != nil {
		return nil, fault.At(err, "sandbox %q", name)
	}
	return s, installedAt(r, name, box)
}

// installedAt refuses a sandbox on whose port an agent was installed, which is there for as long as the sandbox. An agent that was deployed onto it may be gone:
// whether it is, the ledger tells.
func installedAt(r *task.Run, name string, box task.Sandbox) error {
	url := box.TunnelURLs[fmt.Sprint(deploy.Port)]
	for _, other := range r.Agents() {
		installed := other.Bool("on_host") || other.Str("installed_container") != ""
		if installed && other.Str("sandbox_id") == box.ID && strings.TrimRight(other.Str("a2a_url"), "/") == strings.TrimRight(url, "/") {
			return fault.New(fault.Exists, "sandbox %q is taken: the agent %q answers on its port %d, which serves one; deploy another sandbox", name, other.Str("agent_name"), deploy.Port)
		}
	}
	return nil
}

func notVM(name, mode string) string {
	return fmt.Sprintf("sandbox_name: sandbox %q is of the mode %s; an agent is deployed onto one of the mode vm that exposes port %d", name, mode, deploy.Port)
}

// siteCheck returns what the fields of the step itself show against its sandbox_name.
func siteCheck(s *task.Step) []string {
	a, _ := s.Action.(*deployAgent)
	if a == nil || a.fields.Str("sandbox_name") == "" || !a.policy.Restrictive() {
		return nil
	}
	return []string{fmt.Sprintf("network_policy mode '%s' cannot be put on the sandbox of sandbox_name, which is there already: give it to its deploy_sandbox", a.policy.Mode)}
}

// siteWarnings names the fields that say something about a sandbox of the agent's own, which it does not get.
func siteWarnings(s *task.Step) []string {
	f := s.Fields
	if f.Str("sandbox_name") == "" {
		return nil
	}
	var idle []string
	for _, key := range []string{"sandbox_type", "cpu", "memory_mb", "disk_size_gb", "ttl_seconds"} {
		if f.Value(key) != nil {
			idle = append(idle, key)
		}
	}
	if len(idle) == 0 {
		return nil
	}
	return []string{"without effect beside sandbox_name, whose deploy_sandbox says it: " + strings.Join(idle, ", ")}
}

// siteAmong checks the sandbox_name of a step against the steps that deploy sandboxes in its task. A task that deploys none may be run
// with sandboxes from elsewhere.
func siteAmong(s *task.Step, before, all []*task.Step) []string {
	name := s.Fields.Str("sandbox_name")
	if name == "" {
		return nil
	}
	var names []string
	for _, other := range all {
		if other.Type != "deploy_sandbox" || other.Problem != nil {
			continue
		}
		if other.Fields.Str("sandbox_name") != name {
			names = append(names, other.Fields.Str("sandbox_name"))
			continue
		}
		if !slices.Contains(before, other) {
			return []string{fmt.Sprintf("sandbox_name: %q is deployed by the step %q, on which this one does not depend", name, other.ID)}
		}
		return siteOf(name, other.Fields)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []string{fmt.Sprintf("sandbox_name: no step deploys a sandbox %q; deployed are %s", name, strings.Join(slices.Compact(names), ", "))}
}

// siteOf checks the sandbox that a deploy_sandbox with these fields makes.
func siteOf(name string, f *doc.Object) []string {
	if mode := f.Str("sandbox_mode"); mode != string(sandbox.VM) {
		return []string{notVM(name, mode)}
	}
	for _, p := range f.Arr("exposed_ports") {
		if n, ok := doc.Of("p", task.Adapt(p, task.Integer)).Int("p"); ok && n == deploy.Port {
			return nil
		}
	}
	return []string{fmt.Sprintf("sandbox_name: sandbox %q does not expose port %d; add it to its exposed_ports", name, deploy.Port)}
}
