package agents

import (
	"strings"
	"unicode/utf8"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
)

// tokenLength is from how many characters on a user name in a URL is taken for a token.
const tokenLength = 16

// openAddress refuses an address of a person that holds what must not be stored: a password, or a token in its place. The error does not show it.
func openAddress(field, address string) error {
	_, rest, ok := strings.Cut(address, "://")
	if !ok {
		return nil
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return nil
	}
	user, password, _ := strings.Cut(rest[:at], ":")
	if password == "" && utf8.RuneCountInString(user) < tokenLength {
		return nil
	}
	return fault.New(fault.Invalid, "%s holds a password or token, which would be stored with the task and each of its runs: keep the address as a secret and write secret:NAME "+
		"(or env:NAME for a variable of this process)", field)
}

// endpoint returns where a recorded agent answers. The address of a person may be recorded as a reference, which is resolved here.
func (d Deps) endpoint(record *doc.Object) (agent.Endpoint, error) {
	resolved := record
	for _, key := range []string{"a2a_url", "api_url"} {
		recorded := record.Str(key)
		if recorded == "" || record.Str("sandbox_id") != "" {
			continue
		}
		address, err := d.Config.ResolveText(recorded)
		if err != nil {
			return agent.Endpoint{}, fault.At(err, "the address of the agent %q", record.Str("agent_name"))
		}
		if address != recorded {
			resolved = resolved.Clone().Set(key, address)
		}
	}
	return d.Deployer.Endpoint(resolved)
}
