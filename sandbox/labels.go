package sandbox

import (
	"strings"
	"time"
)

// Labels that every container of a sandbox carries; LabelAttr is followed by the key of an attribution tag.
const (
	LabelSandbox  = "agentenv.sandbox"
	LabelManaged  = "agentenv.managed"
	LabelProvider = "agentenv.provider"
	LabelInstance = "agentenv.instance"
	LabelTask     = "agentenv.task"
	LabelStep     = "agentenv.step"
	LabelCreated  = "agentenv.created"
	LabelExpires  = "agentenv.expires"
	LabelState    = "agentenv.state"
	LabelAttr     = "agentenv.attr."
)

const defaultTTL = 2 * time.Hour

// Labels returns the labels of a sandbox created now by a provider whose state folder has the given mark.
func Labels(provider, id, stateMark string, s Spec) map[string]string {
	ttl := s.TTL
	if ttl <= 0 {
		ttl = defaultTTL
	}
	now := time.Now().UTC()
	l := map[string]string{
		LabelSandbox: id, LabelManaged: "true", LabelProvider: provider, LabelInstance: s.Owner.Instance, LabelTask: s.Owner.Task, LabelStep: s.Owner.Step,
		LabelCreated: now.Format(time.RFC3339), LabelExpires: now.Add(ttl).Format(time.RFC3339), LabelState: stateMark,
	}
	for k, v := range s.Attribution {
		l[LabelAttr+k] = v
	}
	return l
}

// FoundFrom reads the labels of a thing of ours back.
func FoundFrom(kind, ref, name, state string, created time.Time, labels map[string]string) Found {
	f := Found{Provider: labels[LabelProvider], Kind: kind, Ref: ref, Name: strings.TrimPrefix(name, "/"), State: state, CreatedAt: created,
		SandboxID: labels[LabelSandbox], Instance: labels[LabelInstance], StateRoot: labels[LabelState]}
	f.ExpiresAt, _ = time.Parse(time.RFC3339, labels[LabelExpires])
	return f
}
