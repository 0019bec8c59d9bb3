package task

import (
	"agentenv/store/doc"
)

// RecordedSandbox is a sandbox that a run recorded.
type RecordedSandbox struct {
	ID   string
	Type string // provider; "" = the default of its slot
	Slot string // sandbox, env or agent: which configured default stands in for an empty Type
	Name string // the record's own name: sandbox_name, env_id or agent_name
	Key  string // of an env's further sandboxes: its key in sandbox_ids, the provider when it names one
}

// Recorded returns the sandboxes that a run's context records, each id once, in the order in which they are to be ended:
// sandboxes, envs, agents, then those of dropped attempts in the same order. What was torn down already is included;
// TornDownIDs tells it.
func Recorded(context *doc.Object) []RecordedSandbox {
	var all []RecordedSandbox
	seen := map[string]bool{}
	add := func(r RecordedSandbox) {
		if r.ID != "" && !seen[r.ID] {
			seen[r.ID] = true
			all = append(all, r)
		}
	}
	recordsOf(context, add)
	for _, v := range context.Obj("metadata").Arr("retry_resets") {
		o, _ := v.(*doc.Object)
		recordsOf(o.Obj("rolled_back_sandboxes"), add)
	}
	return all
}

func recordsOf(holder *doc.Object, add func(RecordedSandbox)) {
	for _, o := range objects(holder, "deployed_sandboxes") {
		add(RecordedSandbox{ID: o.Str("sandbox_id"), Type: o.Str("sandbox_type"), Slot: "sandbox", Name: o.Str("sandbox_name")})
	}
	for _, o := range objects(holder, "deployed_envs") {
		r := RecordedSandbox{ID: o.Str("sandbox_id"), Type: o.Str("sandbox_type"), Slot: "env", Name: o.Str("env_id")}
		add(r)
		more := o.Obj("sandbox_ids")
		for _, k := range more.Keys() {
			r.Key = k
			switch v := more.Value(k).(type) {
			case string:
				r.ID = v
				add(r)
			case *doc.Object:
				for _, service := range v.Keys() {
					r.ID = v.Str(service)
					add(r)
				}
			}
		}
	}
	for _, o := range objects(holder, "deployed_agents") {
		add(RecordedSandbox{ID: o.Str("sandbox_id"), Type: o.Str("sandbox_type"), Slot: "agent", Name: o.Str("agent_name")})
	}
}

// TornDownIDs returns the ids of metadata.torn_down_sandbox_ids.
func TornDownIDs(context *doc.Object) map[string]bool {
	gone := map[string]bool{}
	for _, v := range context.Obj("metadata").Arr("torn_down_sandbox_ids") {
		if id, ok := v.(string); ok {
			gone[id] = true
		}
	}
	return gone
}
