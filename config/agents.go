package config

import (
	"strings"

	"agentenv/fault"
)

const (
	humanVar     = "AGENT_ENV_HUMAN_A2A_URL"
	defaultAgent = "@local/agentenv-framework/agents/claude-code"
)

// AgentsSection is `[agents]`.
type AgentsSection struct {
	DefaultID string // the agent deployed when a step names none
}

// Agents returns `[agents]`; without it the built-in default agent. Unknown keys, and an id that is no text or blank, are
// errors of kind Invalid and class ConfigError.
func (c *Config) Agents() (AgentsSection, error) {
	out := AgentsSection{DefaultID: defaultAgent}
	t, err := c.table("agents")
	if err != nil {
		return out, err
	}
	const key = "default_a2a_agent_id"
	if err := c.only(t, "agents", key); err != nil {
		return out, err
	}
	v, ok := t.Get(key)
	if !ok {
		return out, nil
	}
	out.DefaultID, err = c.nonBlank(v, "agents", key)
	return out, err
}

// nonBlank checks and resolves a string of the file.
func (c *Config) nonBlank(v any, table, key string) (string, error) {
	s, ok := v.(string)
	if ok {
		var err error
		if s, err = c.resolveString(s, envSecrets); err != nil {
			return "", fault.At(err, "%s: [%s] %s", c.found.path, table, key)
		}
	}
	if strings.TrimSpace(s) == "" {
		return "", invalid("%s: [%s] %s must be a string that is not blank", c.found.path, table, key)
	}
	return s, nil
}

// ConversationsSection is `[conversations]`.
type ConversationsSection struct {
	HumanURL string // the base URL at which human agents are reached; never ""
}

// Conversations returns `[conversations]`: AGENT_ENV_HUMAN_A2A_URL as it is, else the file's default_human_a2a_url. Neither is
// an error, of kind Invalid and class ConfigError like all others here; a broken file is none when the variable is set.
func (c *Config) Conversations() (ConversationsSection, error) {
	if v := c.env(humanVar); v != "" {
		return ConversationsSection{HumanURL: v}, nil
	}
	t, err := c.table("conversations")
	if err != nil {
		return ConversationsSection{}, err
	}
	const key = "default_human_a2a_url"
	v, ok := t.Get(key)
	if !ok {
		return ConversationsSection{}, invalid("no address of human agents: set %s, or %s under [conversations] in the config file", humanVar, key)
	}
	s, err := c.nonBlank(v, "conversations", key)
	return ConversationsSection{HumanURL: s}, err
}
