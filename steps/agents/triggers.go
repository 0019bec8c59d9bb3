package agents

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/protocol/triggers"
	"agentenv/store/doc"
	"agentenv/task"
)

const triggersLimit = 30 * time.Second

func triggersType(d Deps) *task.StepType {
	return &task.StepType{
		Name:    "register_agent_triggers",
		Summary: "Register rules for what a simulated user says",
		Family:  "agents",
		Doc: "The agent is one that plays the user of a prompt_agent step with `max_conversation_turns` above 1. After each turn its triggers decide first: those that fire say the next " +
			"prompt or end the conversation; when none does, the agent itself answers. A trigger is `{\"id\", \"once\", \"when\", \"actions\"}`. `when` is of the type step, conversational, " +
			"env_trigger, all or any; an action is `{\"type\": \"say\", \"text\": …}` or `{\"type\": \"end\"}`.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			{Name: "agent_name", Kind: task.String, Required: true, Doc: "the deployed agent that plays the user"},
			{Name: "triggers", Kind: task.List, Items: task.ObjectKind, Required: true, Doc: "what to register; one without an id gets one"},
		},
		Refs: []task.Ref{{Path: "env_id", Kind: "env", Walk: "triggers"}},
		Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) {
			return &registerTriggers{deps: d, agent: f.Str("agent_name"), list: f.Arr("triggers")}, nil, nil
		},
		Given: func(f *doc.Object) error {
			list, err := plain(f.Arr("triggers"))
			if err != nil {
				return err
			}
			_, err = triggers.New(time.Now).Register(list)
			return err
		},
	}
}

// plain returns a document's list as encoding/json gives it, numbers with their digits.
func plain(list []any) (any, error) {
	text, err := doc.Compact(list)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out any
	err = d.Decode(&out)
	return out, err
}

type registerTriggers struct {
	deps  Deps
	agent string
	list  []any
}

// Execute registers the triggers, all or none, and records which were new.
func (a *registerTriggers) Execute(ctx context.Context, r *task.Run) error {
	err := a.execute(ctx, r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fault.At(err, "register_agent_triggers %q", r.StepID)
}

func (a *registerTriggers) execute(ctx context.Context, r *task.Run) error {
	_, e, err := a.deps.find(r, a.agent)
	if err != nil {
		return err
	}
	if e.Card.Extension(card.Triggers) == nil {
		return fault.New(fault.Unsupported, "the agent %q takes no triggers: its card offers none; use an agent that does", a.agent).WithClass("RuntimeError")
	}
	for _, v := range a.list {
		o, _ := v.(*doc.Object)
		if err := known(r, o.Str("id"), o.Obj("when")); err != nil {
			return err
		}
	}
	answer, err := a.deps.Client.Call(ctx, e, agent.Call{URI: card.Triggers, Op: "register", Body: doc.Of("triggers", named(r.StepID, a.list)), Timeout: triggersLimit})
	if err != nil {
		return fault.At(err, "the agent %q", a.agent)
	}
	added := answer.Arr("added")
	if added == nil {
		added = []any{}
	}
	r.Append(doc.Of("step_id", r.StepID, "agent_name", a.agent, "added", added), "agent_trigger_registrations")
	return nil
}

// named gives each trigger without an id the one that a repetition of the step gives it again, so that the agent knows it then.
func named(step string, list []any) []any {
	out := make([]any, len(list))
	for i, v := range list {
		o, isObject := v.(*doc.Object)
		if out[i] = v; isObject && o.Value("id") == nil {
			sum := sha256.Sum256([]byte(step + "\x00" + strconv.Itoa(i) + "\x00" + doc.Canonical(o)))
			out[i] = o.Clone().Set("id", "trg_"+hex.EncodeToString(sum[:6]))
		}
	}
	return out
}

// known refuses a condition on a trigger of an env that nothing in this run can fire.
func known(r *task.Run, trigger string, when *doc.Object) error {
	for _, v := range when.Arr("of") {
		o, _ := v.(*doc.Object)
		if err := known(r, trigger, o); err != nil {
			return err
		}
	}
	if when.Str("type") != "env_trigger" {
		return nil
	}
	env, id := when.Str("env_id"), when.Str("trigger_id")
	deployed := slices.ContainsFunc(r.Envs(), func(o *doc.Object) bool { return o.Str("env_id") == env })
	if !deployed {
		return fault.New(fault.Invalid, "the trigger %q waits for the env %q, which is not deployed in this run", trigger, env).WithClass("RuntimeError")
	}
	list, _ := r.Metadata("env_trigger_registrations").([]any)
	for _, v := range list {
		o, _ := v.(*doc.Object)
		if o.Str("env_id") == env && slices.Contains(o.Arr("added"), any(id)) {
			return nil
		}
	}
	return fault.New(fault.Invalid, "the trigger %q waits for the trigger %q of the env %q, which no register_env_triggers step has added", trigger, id, env).WithClass("RuntimeError")
}
