package sandbox

import (
	"agentenv/fault"
	"agentenv/store/doc"
)

// NetworkPolicy says what a sandbox may reach.
type NetworkPolicy struct {
	Mode       string // AllowAll or Allowlist
	AllowHosts []string
	AllowCIDRs []string
}

// The modes of a network policy.
const (
	AllowAll  = "allow_all"
	Allowlist = "allowlist"
)

// ParsePolicy reads a policy from its JSON form; null gives nil. An unknown mode or key, a list given as one string, a bare
// "*" and entries beside allow_all are refused (Invalid).
func ParsePolicy(v any) (*NetworkPolicy, error) {
	if v == nil {
		return nil, nil
	}
	o, ok := v.(*doc.Object)
	if !ok {
		return nil, fault.New(fault.Invalid, "network_policy must be an object such as {\"mode\": \"allow_all\"}, not a %s", doc.TypeName(v))
	}
	p := &NetworkPolicy{Mode: AllowAll}
	for _, k := range o.Keys() {
		var err error
		switch k {
		case "mode":
			mode, _ := o.Value(k).(string)
			if o.Value(k) != nil {
				p.Mode = mode
			}
		case "allow_hosts":
			p.AllowHosts, err = entries(k, o.Value(k))
		case "allow_cidrs":
			p.AllowCIDRs, err = entries(k, o.Value(k))
		default:
			err = fault.New(fault.Invalid, "network_policy has an unknown key %q; it takes mode, allow_hosts and allow_cidrs", k)
		}
		if err != nil {
			return nil, err
		}
	}
	if p.Mode != AllowAll && p.Mode != Allowlist {
		return nil, fault.New(fault.Invalid, "Unknown network policy mode %q; expected one of %s, %s", p.Mode, AllowAll, Allowlist)
	}
	for _, h := range p.AllowHosts {
		if h == "*" {
			return nil, fault.New(fault.Invalid, "network_policy allow_hosts may not hold a bare \"*\"; use mode allow_all, or a pattern such as \"*.example.com\"")
		}
	}
	if p.Mode == AllowAll && len(p.AllowHosts)+len(p.AllowCIDRs) > 0 {
		return nil, fault.New(fault.Invalid, "network_policy mode allow_all permits everything; entries would be silently ignored, so use mode allowlist or drop them")
	}
	return p, nil
}

func entries(key string, v any) ([]string, error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fault.New(fault.Invalid, "network_policy %s must be a sequence of entries, not a %s", key, doc.TypeName(v))
	}
	var out []string
	for _, x := range list {
		s, ok := x.(string)
		if !ok {
			return nil, fault.New(fault.Invalid, "network_policy %s must hold strings, not a %s", key, doc.TypeName(x))
		}
		out = append(out, s)
	}
	return out, nil
}

// Document returns the stored form, with all three keys; nil for a nil policy.
func (p *NetworkPolicy) Document() *doc.Object {
	if p == nil {
		return nil
	}
	list := func(in []string) []any {
		out := make([]any, len(in))
		for i, s := range in {
			out[i] = s
		}
		return out
	}
	return doc.Of("mode", p.Mode, "allow_hosts", list(p.AllowHosts), "allow_cidrs", list(p.AllowCIDRs))
}

// Restrictive reports whether the policy forbids anything.
func (p *NetworkPolicy) Restrictive() bool { return p != nil && p.Mode == Allowlist }
