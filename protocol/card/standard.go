package card

// The standard extensions of agents.
const (
	AgentConfig      = "urn:agentenv:agent-config/v1"
	MCPConfig        = "urn:agentenv:mcp-config/v1"
	SkillConfig      = "urn:agentenv:skill-config/v1"
	Trajectory       = "urn:agentenv:trajectory/v1"
	Snapshot         = "urn:agentenv:snapshot/v1"
	PeerAgents       = "urn:agentenv:peer-agents/v1"
	Triggers         = "urn:agentenv:triggers/v1"
	AttributionProbe = "urn:agentenv:attribution-probe/v1"
	Install          = "urn:agentenv:install/v1"
	Proxy            = "urn:agentenv:proxy/v1"
	Staging          = "urn:agentenv:staging/v1"
)

// Route is the HTTP method and path of an operation.
type Route struct{ Method, Path string }

// Standard returns the route that the protocol gives an operation of a standard extension, and the path of the extension itself; ok is
// false for an operation the protocol does not know.
func Standard(uri, operation string) (r Route, endpoint string, ok bool) {
	e, known := standard[uri]
	if !known {
		return Route{}, "", false
	}
	r, ok = e.operations[operation]
	return r, e.endpoint, ok
}

type definition struct {
	endpoint   string
	operations map[string]Route
}

var standard = map[string]definition{
	AgentConfig: {"/ext/agent-config", map[string]Route{"set": {"POST", "/ext/agent-config"}, "get": {"GET", "/ext/agent-config"}}},
	MCPConfig:   {"/ext/mcp-config", map[string]Route{"add": {"POST", "/ext/mcp-config"}, "list": {"GET", "/ext/mcp-config"}}},
	SkillConfig: {"/ext/skill-config", map[string]Route{"add": {"POST", "/ext/skill-config"}, "list": {"GET", "/ext/skill-config"}}},
	Trajectory:  {"/ext/trajectory", map[string]Route{"get": {"POST", "/ext/trajectory"}}},
	Snapshot: {"/ext/snapshot", map[string]Route{"save": {"POST", "/ext/snapshot"}, "load": {"PUT", "/ext/snapshot"},
		"enable-changelog": {"POST", "/ext/snapshot/changelog"}, "apply-changelog": {"PUT", "/ext/snapshot/changelog"}}},
	PeerAgents: {"/ext/peer-agents", map[string]Route{"set": {"POST", "/ext/peer-agents"}, "list": {"GET", "/ext/peer-agents"}}},
	Triggers: {"/ext/triggers", map[string]Route{"register": {"POST", "/ext/triggers"}, "decide": {"POST", "/ext/triggers/decide"},
		"state": {"GET", "/ext/triggers"}}},
	AttributionProbe: {"/ext/attribution-probe", map[string]Route{"probe": {"POST", "/ext/attribution-probe"}}},
	Proxy: {"/ext/proxy", map[string]Route{"claim": {"POST", "/ext/proxy/claim"}, "next": {"POST", "/ext/proxy/next"},
		"tools": {"POST", "/ext/proxy/tools"}, "act": {"POST", "/ext/proxy/act"}, "result": {"POST", "/ext/proxy/result"},
		"record": {"POST", "/ext/proxy/record"}, "reply": {"POST", "/ext/proxy/reply"}}},
}
