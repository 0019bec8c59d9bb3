package a2a

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"agentenv/fault"
	"agentenv/protocol/card"
)

// standard are the extensions that the protocol defines, with the operations an agent that offers one must have.
var standard = map[string][]string{
	card.AgentConfig:      {"set"},
	card.MCPConfig:        {"add", "list"},
	card.SkillConfig:      {"add", "list"},
	card.Trajectory:       {"get"},
	card.Snapshot:         {"save", "load"},
	card.PeerAgents:       {"set", "list"},
	card.Triggers:         {"register", "decide", "state"},
	card.AttributionProbe: {"probe"},
	card.Install:          nil,
	card.Proxy:            {"claim", "next", "tools", "act", "result", "record", "reply"},
}

// together are operations that a standard extension may have, all or none.
var together = map[string][]string{card.Snapshot: {"enable-changelog", "apply-changelog"}}

// assemble checks the agent and fills in what it left out.
func (s *Server) assemble() error {
	if err := s.identity(); err != nil {
		return err
	}
	if (s.agent.Run == nil) == (s.agent.Stream == nil) {
		return fault.New(fault.Invalid, "the agent needs exactly one of Run and Stream")
	}
	s.routes.exact = map[string]map[string]http.Handler{}
	s.skills.own = s.agent.Identity.Skills
	for _, own := range []struct {
		method, path string
		handler      http.HandlerFunc
	}{
		{http.MethodGet, cardPath, s.serveCard}, {http.MethodGet, legacyCard, s.serveCard}, {http.MethodPost, s.rpcPath, s.serveRPC},
		{http.MethodGet, healthPath, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`)) }},
	} {
		if err := s.route(own.method, own.path, own.handler); err != nil {
			return err
		}
	}
	if s.agent.Config != nil {
		c, err := newConfig(s.agent.Config)
		if err != nil {
			return err
		}
		s.config = c
		e := c.extension(!s.agent.NoReadback)
		if err := e.fill(true, standard[card.AgentConfig]); err != nil {
			return err
		}
		if err := s.extend(e); err != nil {
			return err
		}
	}
	for _, ext := range s.agent.Extensions {
		e, err := s.entry(ext)
		if err != nil {
			return err
		}
		if err := s.extend(e); err != nil {
			return err
		}
		s.mcp.reserved = append(s.mcp.reserved, ext.Reserved...)
	}
	if err := s.stage(); err != nil {
		return err
	}
	return s.overlaps()
}

func (s *Server) identity() error {
	id := &s.agent.Identity
	if id.Name == "" || id.Description == "" || id.Version == "" {
		return fault.New(fault.Invalid, "the agent needs a name, a description and a version")
	}
	if id.URL == "" {
		id.URL = "/a2a"
	}
	if id.InputModes == nil {
		id.InputModes = []string{"text"}
	}
	if id.OutputModes == nil {
		id.OutputModes = []string{"text"}
	}
	u, err := url.Parse(id.URL)
	ok := err == nil && !strings.ContainsAny(id.URL, "?#") && u.User == nil
	if ok && u.Scheme != "" {
		ok = (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
	} else if ok {
		ok = u.Host == "" && strings.HasPrefix(u.Path, "/")
	}
	if !ok {
		return fault.New(fault.Invalid, "the agent's URL %q must be an absolute path or an http(s) URL, without query and fragment", id.URL)
	}
	if s.rpcPath = u.Path; s.rpcPath == "" {
		s.rpcPath = "/"
	}
	return nil
}

// entry checks one extension of the author and fills it in.
func (s *Server) entry(ext Extension) (*entry, error) {
	needs, known := standard[ext.URI]
	switch {
	case ext.URI == "":
		return nil, fault.New(fault.Invalid, "an extension has no URI")
	case ext.URI == card.AgentConfig:
		return nil, fault.New(fault.Invalid, "%s is not declared but comes from the agent's Config", ext.URI)
	case ext.URI == card.Staging:
		return nil, fault.New(fault.Invalid, "%s is not declared but comes from the settings", ext.URI)
	case !known && strings.HasPrefix(ext.URI, "urn:agentenv:"):
		return nil, fault.New(fault.Invalid, "the extension %s is not defined: URIs that begin with urn:agentenv: are the protocol's", ext.URI)
	}
	e := &entry{ext: ext, ops: slices.Clone(ext.Operations)}
	if ext.bind != nil {
		e.ops = ext.bind(s)
	}
	return e, e.fill(known, needs)
}

// fill checks the operations and gives them and the extension their paths.
func (e *entry) fill(known bool, needs []string) error {
	uri, have := e.ext.URI, []string{}
	for i := range e.ops {
		op := &e.ops[i]
		if slices.Contains(have, op.Name) {
			return fault.New(fault.Invalid, "the extension %s has two operations %q", uri, op.Name)
		}
		have = append(have, op.Name)
		if err := op.ready(uri, known); err != nil {
			return err
		}
	}
	e.endpoint = e.ext.Endpoint
	if known {
		if e.endpoint == "" {
			_, e.endpoint, _ = card.Standard(uri, "")
		}
		return complete(uri, needs, have)
	}
	if len(e.ops) == 0 && len(e.ext.Mounts) == 0 {
		return fault.New(fault.Invalid, "the extension %s has no operation", uri)
	}
	if e.endpoint == "" && len(e.ops) > 0 {
		e.endpoint = e.ops[0].Path
	}
	return nil
}

// complete reports what a standard extension lacks.
func complete(uri string, needs, have []string) error {
	lacks := func(list []string) (out []string) {
		for _, name := range list {
			if !slices.Contains(have, name) {
				out = append(out, name)
			}
		}
		return out
	}
	pair := together[uri]
	if l := lacks(needs); len(l) > 0 {
		return fault.New(fault.Invalid, "the extension %s has the operations %s but lacks %s", uri, quoted(have), quoted(l))
	}
	if l := lacks(pair); len(l) > 0 && len(l) < len(pair) {
		return fault.New(fault.Invalid, "the extension %s has one of %s and must have both: it lacks %s", uri, quoted(pair), quoted(l))
	}
	return nil
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "(none)"
	}
	return strings.Join(names, ", ")
}

// ready checks an operation and gives it its route.
func (o *Operation) ready(uri string, known bool) error {
	if o.Name == "" {
		return fault.New(fault.Invalid, "an operation of %s has no name", uri)
	}
	for _, v := range o.variants {
		if v.err != nil {
			return fault.At(v.err, "the operation %q of %s", o.Name, uri)
		}
		if v.call == nil {
			return fault.New(fault.Invalid, "the operation %q of %s has no handler for %q", o.Name, uri, v.name)
		}
	}
	if len(o.enabled()) == 0 {
		return fault.New(fault.Invalid, "the operation %q of %s has no handler", o.Name, uri)
	}
	if known {
		r, _, ok := card.Standard(uri, o.Name)
		if !ok {
			return fault.New(fault.Invalid, "the extension %s has no operation %q", uri, o.Name)
		}
		if o.Path == "" {
			o.Path = r.Path
		}
		o.Method = r.Method
	}
	if !slices.Contains([]string{"GET", "POST", "PUT", "PATCH", "DELETE"}, o.Method) || !strings.HasPrefix(o.Path, "/") {
		return fault.New(fault.Invalid, "the operation %q of %s needs a method and an absolute path, not %q and %q", o.Name, uri, o.Method, o.Path)
	}
	return nil
}

// extend adds an extension with its routes.
func (s *Server) extend(e *entry) error {
	if slices.ContainsFunc(s.entries, func(other *entry) bool { return other.ext.URI == e.ext.URI }) {
		return fault.New(fault.Invalid, "the extension %s is there twice", e.ext.URI)
	}
	for _, op := range e.ops {
		if err := s.route(op.Method, op.Path, s.serveOperation(op)); err != nil {
			return err
		}
	}
	for prefix, m := range e.ext.Mounts {
		if !strings.HasPrefix(prefix, "/") || !strings.HasSuffix(prefix, "/") || m.Handler == nil {
			return fault.New(fault.Invalid, "the mount %q of %s needs a handler, and a path that begins and ends with a slash", prefix, e.ext.URI)
		}
		s.routes.mounts = append(s.routes.mounts, mount{prefix, m.Handler, m.Open})
	}
	s.entries = append(s.entries, e)
	return nil
}

func (s *Server) route(method, path string, h http.Handler) error {
	methods := s.routes.exact[path]
	if methods == nil {
		methods = map[string]http.Handler{}
		s.routes.exact[path] = methods
	}
	if methods[method] != nil {
		return fault.New(fault.Invalid, "%s %s is served twice", method, path)
	}
	methods[method] = h
	return nil
}

// overlaps refuses operations below a mount, and mounts below one another.
func (s *Server) overlaps() error {
	for i, m := range s.routes.mounts {
		for path := range s.routes.exact {
			if strings.HasPrefix(path+"/", m.prefix) {
				return fault.New(fault.Invalid, "%s is served twice: it is below the mount %s", path, m.prefix)
			}
		}
		for j, other := range s.routes.mounts {
			if i != j && strings.HasPrefix(other.prefix, m.prefix) {
				return fault.New(fault.Invalid, "the mount %s is below the mount %s", other.prefix, m.prefix)
			}
		}
	}
	return nil
}
