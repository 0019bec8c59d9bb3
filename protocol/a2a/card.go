package a2a

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"agentenv/protocol/a2a/model"
	"agentenv/protocol/card"
)

// entry is an extension of the server with everything filled in.
type entry struct {
	ext      Extension
	endpoint string
	ops      []Operation
	requests map[string]map[string]any // what the card says about requests, where it is not told by the forms
}

// serveCard answers with the card as it is now.
func (s *Server) serveCard(w http.ResponseWriter, _ *http.Request) {
	text, err := json.Marshal(s.card())
	if err != nil {
		s.fail(w, "card", err)
		return
	}
	writeJSON(w, http.StatusOK, text)
}

func (s *Server) card() map[string]any {
	id := s.agent.Identity
	name, description := id.Name, id.Description
	if s.config != nil {
		name, description = s.config.identity(name, description)
	}
	skills := []map[string]any{}
	for _, k := range id.Skills {
		skills = append(skills, skillOnCard(k))
	}
	for _, k := range s.skills.all() {
		skills = append(skills, skillOnCard(CardSkill{ID: "skill-" + k.Name, Name: k.Name, Description: k.Description, Tags: []string{"skill"}}))
	}
	extensions := []map[string]any{}
	for _, e := range s.entries {
		extensions = append(extensions, e.onCard())
	}
	out := map[string]any{
		"name": name, "description": description, "version": id.Version, "url": id.URL,
		"protocolVersion": "0.3.0", "preferredTransport": "JSONRPC",
		"defaultInputModes": id.InputModes, "defaultOutputModes": id.OutputModes, "skills": skills,
		"capabilities": map[string]any{"streaming": s.agent.Stream != nil, "pushNotifications": false, "stateTransitionHistory": false, "extensions": extensions},
	}
	if s.settings.Token != "" {
		out["securitySchemes"] = map[string]any{"bearer": map[string]any{"type": "http", "scheme": "bearer"}}
		out["security"] = []any{map[string]any{"bearer": []string{}}}
	}
	return out
}

func skillOnCard(k CardSkill) map[string]any {
	tags := k.Tags
	if tags == nil {
		tags = []string{}
	}
	return map[string]any{"id": k.ID, "name": k.Name, "description": k.Description, "tags": tags}
}

func (e *entry) onCard() map[string]any {
	methods := map[string]any{}
	for _, op := range e.ops {
		methods[op.Name] = e.method(op)
	}
	params := map[string]any{}
	if e.endpoint != "" {
		params["endpoint"] = e.endpoint
	}
	if len(methods) > 0 {
		params["methods"] = methods
	}
	out := map[string]any{"uri": e.ext.URI, "description": e.ext.Description, "params": merge(params, e.ext.Params)}
	if e.ext.Required {
		out["required"] = true
	}
	return out
}

func (e *entry) method(op Operation) map[string]any {
	m := map[string]any{"method": op.Method}
	if op.Path != e.endpoint {
		m["endpoint"] = op.Path
	}
	r, told := e.requests[op.Name]
	if !told {
		r = requestOnCard(op.enabled())
	}
	if len(r) > 0 {
		m["request"] = r
	}
	if op.response != nil {
		if r := fieldsOnCard(op.response.Required(), op.response.Optional()); len(r) > 0 {
			m["response"] = r
		}
	}
	return m
}

func requestOnCard(on []*Variant) map[string]any {
	required, optional := hoisted(on, (*model.Model).Required), hoisted(on, (*model.Model).Optional)
	out := fieldsOnCard(required, optional)
	if len(on) == 1 {
		return out
	}
	without := func(list, hoisted []string) []string {
		return slices.DeleteFunc(list, func(name string) bool { return slices.Contains(hoisted, name) })
	}
	forms := []any{}
	for _, v := range on {
		forms = append(forms, fieldsOnCard(without(v.request.Required(), required), without(v.request.Optional(), optional)))
	}
	out["oneOf"] = forms
	return out
}

func fieldsOnCard(required, optional []string) map[string]any {
	out := map[string]any{}
	if len(required) > 0 {
		out["required"] = required
	}
	if len(optional) > 0 {
		out["optional"] = optional
	}
	return out
}

// merge returns a with b laid over it, objects into objects.
func merge(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	for k, v := range b {
		below, isObject := out[k].(map[string]any)
		if over, ok := v.(map[string]any); ok && isObject {
			v = merge(below, over)
		}
		out[k] = v
	}
	return out
}

// Card returns the agent's card as it is served now.
func (s *Server) Card() (*card.Card, error) {
	text, err := json.Marshal(s.card())
	if err != nil {
		return nil, err
	}
	return card.Parse(text)
}
