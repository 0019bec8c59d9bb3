package task

import (
	"agentenv/store/doc"
)

// Document returns the record as stored: every field, nulls included.
func (s Sandbox) Document() *doc.Object {
	d := doc.Of("sandbox_name", s.Name, "sandbox_id", s.ID, "sandbox_mode", s.Mode, "sandbox_type", orNull(s.Type))
	var urls any
	if s.TunnelURLs != nil {
		urls = stringMap(s.TunnelURLs)
	}
	var policy any
	if s.NetworkPolicy != nil {
		policy = s.NetworkPolicy
	}
	return d.Set("tunnel_urls", urls).Set("vnc_url", orNull(s.VNCURL)).Set("instance_id", orNull(s.InstanceID)).
		Set("created_at_utc", orNull(s.CreatedAt)).Set("expires_at_utc", orNull(s.ExpiresAt)).Set("network_policy", policy)
}

func sandboxFrom(o *doc.Object) Sandbox {
	s := Sandbox{
		Name: o.Str("sandbox_name"), ID: o.Str("sandbox_id"), Mode: o.Str("sandbox_mode"), Type: o.Str("sandbox_type"),
		VNCURL: o.Str("vnc_url"), InstanceID: o.Str("instance_id"),
		CreatedAt: o.Str("created_at_utc"), ExpiresAt: o.Str("expires_at_utc"), NetworkPolicy: o.Obj("network_policy"),
	}
	if urls := o.Obj("tunnel_urls"); urls != nil {
		s.TunnelURLs = map[string]string{}
		for _, k := range urls.Keys() {
			s.TunnelURLs[k] = urls.Str(k)
		}
	}
	return s
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func stringMap(m map[string]string) *doc.Object {
	o := &doc.Object{}
	for _, k := range sortedKeys(m) {
		o.Set(k, m[k])
	}
	return o
}
