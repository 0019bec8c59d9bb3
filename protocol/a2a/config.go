package a2a

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"agentenv/fault"
	"agentenv/protocol/a2a/model"
	"agentenv/protocol/card"
)

// config is the agent's configuration: what was ever set, laid over the defaults.
type config struct {
	fresh func() any
	model *model.Model

	mu  sync.Mutex
	set map[string]any
}

// newConfig checks what the author gave.
func newConfig(fresh func() any) (*config, error) {
	sample := fresh()
	if t := reflect.TypeOf(sample); t == nil || t.Kind() != reflect.Pointer || reflect.ValueOf(sample).IsNil() {
		return nil, fault.New(fault.Invalid, "Config must return a pointer to a new struct, not %T", sample)
	}
	if _, ok := sample.(based); !ok {
		return nil, fault.New(fault.Invalid, "the configuration %T must embed a2a.BaseConfig", sample)
	}
	m, err := model.Of(sample)
	if err != nil {
		return nil, err
	}
	return &config{fresh: fresh, model: m.Partial(), set: map[string]any{}}, nil
}

// read lays an object over the defaults.
func (c *config) read(set map[string]any) (any, error) {
	v := c.fresh()
	if problems := c.model.Decode(set, v); len(problems) > 0 {
		return nil, problems
	}
	return v, nil
}

// current returns the configuration as it is now, a value of its own.
func (c *config) current() (any, error) {
	c.mu.Lock()
	set, err := copyObject(c.set)
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return c.read(set)
}

func (c *config) identity(name, description string) (string, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.set["name"].(string); ok {
		name = s
	}
	if s, ok := c.set["description"].(string); ok {
		description = s
	}
	return name, description
}

// update sets fields, all or none.
func (c *config) update(given map[string]any) error {
	for _, name := range []string{"name", "description"} {
		v, there := given[name]
		if s, ok := v.(string); there && (!ok || strings.TrimSpace(s) == "") {
			return fault.New(fault.Invalid, "%s must be a string that is not blank", name)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	merged := maps.Clone(c.set)
	maps.Copy(merged, given)
	if _, err := c.read(merged); err != nil {
		return err
	}
	c.set = merged
	return nil
}

// hidden is what a write-only field reads as.
const hidden = "***"

// shown returns what was ever set, as the fields' types have it.
func (c *config) shown() (map[string]any, error) {
	c.mu.Lock()
	set, err := copyObject(c.set)
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	v, err := c.read(set)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	all, err := decode(text)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for name, given := range set {
		read, there := all.(map[string]any)[name]
		switch {
		case c.model.WriteOnly(name):
			out[name] = hidden
		case there:
			out[name] = read
		default:
			out[name] = given
		}
	}
	return out, nil
}

// configSet is a request whose fields the configuration knows.
type configSet struct{ given map[string]any }

type updated struct {
	Status string `json:"status"`
}

type configShown struct {
	Config map[string]any `json:"config"`
}

// extension returns agent-config as the server serves it.
func (c *config) extension(readback bool) *entry {
	set := Op("set", func(_ context.Context, in configSet) (updated, error) {
		return updated{"updated"}, c.update(in.given)
	})
	v := &set.variants[0]
	v.request = c.model
	v.read = func(object map[string]any) (any, model.Problems) { return configSet{object}, nil }
	get := Op("get", func(context.Context, struct{}) (configShown, error) {
		shown, err := c.shown()
		return configShown{shown}, err
	})
	ops := []Operation{set}
	if readback {
		ops = append(ops, get)
	}
	names := c.model.Names()
	slices.Sort(names)
	return &entry{ext: Extension{URI: card.AgentConfig, Description: "Configure the agent"}, ops: ops,
		requests: map[string]map[string]any{"set": {"supported": names, "schema": c.model.Schema()}}}
}
