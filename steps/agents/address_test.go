package agents_test

import (
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/task"
)

// TestAddressesWithSecrets holds that no password of a person's address is stored with a task or a run.
func TestAddressesWithSecrets(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := strings.Repeat("t0ken", 5)
	for _, address := range []string{"http://me:hunter2@host/a2a", "https://me:hunter2@host", "http://" + token + "@host/x", "http://<user>:hunter2@<host>/", "http://a@b:hunter2@host"} {
		for field, step := range map[string]string{"a2a_url": `{"id":"h","type":"deploy_human_agent","a2a_url":"` + address + `"}`,
			"user_a2a_url": `{"id":"p","type":"prompt_agent","prompt":"x","user_a2a_url":"` + address + `"}`} {
			_, err := r.reg.ParseText("t", []byte("["+step+"]"), task.ParseOptions{Strict: true})
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), field+" holds a password or token") || !strings.Contains(err.Error(), "secret:NAME") ||
				strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), token) {
				t.Errorf("%s %s: %v", field, address, err)
			}
		}
	}
	for _, address := range []string{"http://host/a2a", "http://git@host/x", "http://host/x?at=me:you@home", "secret:HUMAN", "env:HUMAN", "<url>", "host:8000"} {
		if _, err := r.reg.ParseText("t", []byte(`[{"id":"h","type":"deploy_human_agent","a2a_url":"`+address+`"}]`), task.ParseOptions{Strict: true}); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestAnAddressByReference records the reference alone, and asks the person all the same.
func TestAnAddressByReference(t *testing.T) {
	t.Parallel()
	f := &fake{answer: echoing}
	url := f.start(t)
	secret := strings.Replace(url, "http://", "http://me:hunter2@", 1)
	r := newRig(t, map[string]string{"HUMAN": secret + "/"})
	run, err := r.run(t.Context(), nil, `{"id":"h","type":"deploy_human_agent","a2a_url":"env:HUMAN"}`)
	if err != nil {
		t.Fatal(err)
	}
	if a := run.Agents()[0]; a.Str("a2a_url") != "env:HUMAN" || a.Str("api_url") != "env:HUMAN" || a.Obj("a2a_card").Str("name") != "fake" {
		t.Errorf("recorded %s", canon(run.Agents()))
	}
	if got := doc.Canonical(run.Context()); strings.Contains(got, "hunter2") {
		t.Errorf("the run holds the password: %s", got)
	}
	run, err = r.run(t.Context(), run.Context(), `{"id":"p","type":"prompt_agent","agent_name":"human_agent","prompt":"are you there?","poll_interval_seconds":0.01}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.got("message/send")) != 1 {
		t.Errorf("asked %d times", len(f.got("message/send")))
	}
	if got := doc.Canonical(run.Context()); strings.Contains(got, "hunter2") {
		t.Errorf("the run holds the password: %s", got)
	}
	_, err = newRig(t, nil).run(t.Context(), nil, `{"id":"h","type":"deploy_human_agent","a2a_url":"env:HUMAN"}`)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "HUMAN") {
		t.Errorf("a variable that is not set: %v", err)
	}
}

// TestTokensInAQueryAreNotShown asks an address where nobody answers.
func TestTokensInAQueryAreNotShown(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	run, err := r.run(t.Context(), nil, `{"id":"h","type":"deploy_human_agent","a2a_url":"http://127.0.0.1:1/x?token=hunter2"}`)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.run(t.Context(), run.Context(), `{"id":"p","type":"prompt_agent","agent_name":"human_agent","prompt":"x","timeout_seconds":0.2}`)
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "127.0.0.1:1/x?***") {
		t.Errorf("%v", err)
	}
}

func TestPromptIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	parse := func(id string) error {
		text, err := doc.Compact([]any{doc.Of("id", "p", "type", "prompt_agent", "prompt", "x", "prompt_id", id)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.reg.ParseText("t", text, task.ParseOptions{Strict: true})
		return err
	}
	for _, id := range []string{"hello", "a b", "größe", "turn/1", "<seed>", strings.Repeat("x", 240), "a..b"} {
		if err := parse(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for id, why := range map[string]string{"a\x00b": "NUL", "a\xed\xa0\x80": "surrogate", strings.Repeat("x", 241): "240", strings.Repeat("xxxxxxx/", 80): "512", "a/../../b": "lead elsewhere"} {
		if err := parse(id); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestAnAliasWhenTheRunComes looks an alias up where a stored task names it.
func TestAnAliasWhenTheRunComes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.provider.Serve = handler(&fake{answer: echoing}, t)
	known := store.NewAliases([]store.Alias{{Name: "echo", ID: "echo-of-the-bundle", Bundle: "the echo bundle"}}, nil)
	*r.agents = *r.agents.WithAliases(func() *store.Aliases { return known })
	const step = `{"id":"d","type":"deploy_agent","a2a_agent_id":"echo"}`
	if _, err := r.run(t.Context(), nil, step); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "'echo' is an alias of echo-of-the-bundle") || !strings.Contains(err.Error(), "not in the store yet") {
		t.Errorf("%v", err)
	}
	r.put("echo-of-the-bundle", nil, "WHO", "the bundle's")
	run, err := r.run(t.Context(), nil, step)
	if err != nil {
		t.Fatal(err)
	}
	if id := run.Agents()[0].Str("instance_id"); !strings.HasPrefix(id, "echo-of-the-bundle-") {
		t.Errorf("deployed as %s", id)
	}
	if _, err := r.run(t.Context(), task.NewContext().Set("metadata", doc.Of("user_overrides", doc.Of("a2a_agent_id", "echo", "a2a_agent_version", doc.Int(1)))), step); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), "drop the pin") {
		t.Errorf("%v", err)
	}
	r.put("echo", nil, "WHO", "the store's")
	if _, err = r.run(t.Context(), nil, step); err != nil {
		t.Fatal(err)
	}
	if specs := r.provider.Specs(); specs[len(specs)-1].Env["WHO"] != "the store's" {
		t.Errorf("the alias shadows the store's own agent: %v", specs[len(specs)-1].Env)
	}
}
