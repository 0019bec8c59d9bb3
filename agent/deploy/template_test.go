package deploy

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/protocol/card"
)

func TestFill(t *testing.T) {
	t.Parallel()
	values := map[string]string{"a": "x y", "b": "it's $HOME `id` \"q\" \\", "empty": "", "plain": "a/b.c@d:1"}
	for template, want := range map[string]string{
		"":                         "",
		"no braces":                "no braces",
		"{{}} {{a}} }}{{":          "{} {a} }{",
		"{{{a}}}":                  "{'x y'}",
		"{a}{plain}{a}":            "'x y'a/b.c@d:1'x y'",
		"{empty}":                  "''",
		"{":                        "!alone",
		"}":                        "!alone",
		"{a":                       "!alone",
		"{{a}":                     "!alone",
		"{}":                       "!{}",
		"{0}":                      "!{0}",
		"{a!r}":                    "!{a!r}",
		"{a:>5}":                   "!{a:>5}",
		"{a.b}":                    "!{a.b}",
		"{ a }":                    "!{ a }",
		"ok {a}, not ok {unknown}": "!{unknown}",
	} {
		got, _, err := fill(template, values)
		if why, bad := strings.CutPrefix(want, "!"); bad {
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), why) {
				t.Errorf("%q: %q, %v", template, got, err)
			}
		} else if got != want || err != nil {
			t.Errorf("%q: %q, %v", template, got, err)
		}
	}
	text, used, err := fill("printf %s {b} {a} {b}", values)
	if err != nil || !slices.Equal(used, []string{"b", "a"}) {
		t.Fatal(used, err)
	}
	out, err := exec.Command("sh", "-c", text).Output()
	if want := values["b"] + values["a"] + values["b"]; err != nil || string(out) != want {
		t.Errorf("a shell reads %q, %v, not %q", out, err, want)
	}
}

func FuzzFill(f *testing.F) {
	for _, s := range []string{"", "{a}", "{{a}}", "{{{a}}}", "{", "}", "{b", "x{a}}y", "\xff{a}"} {
		f.Add(s, "v'")
	}
	f.Fuzz(func(t *testing.T, template, value string) {
		text, used, err := fill(template, map[string]string{"a": value})
		switch {
		case err != nil && (!fault.Is(err, fault.Invalid) || text != ""):
			t.Errorf("%q: %q, %v", template, text, err)
		case err == nil && len(used) == 0 && strings.NewReplacer("{{", "{", "}}", "}").Replace(template) != text:
			t.Errorf("%q becomes %q", template, text)
		case len(used) > 0 && !strings.Contains(text, shellQuote(value)):
			t.Errorf("%q lacks its value: %q", template, text)
		}
	})
}

func FuzzRecipe(f *testing.F) {
	f.Add([]byte(`{"capabilities":{"extensions":[{"uri":"urn:agentenv:install/v1","params":{"install_commands_host":["a"],"required_params_host":[],"a2a_port":8000}}]}}`))
	f.Add([]byte(`{"capabilities":{"extensions":[{"uri":"urn:agentenv:install/v1","params":{"install_commands":[],"required_params":5,"a2a_port":1.5}}]}}`))
	f.Add([]byte(`{"capabilities":{"extensions":[{"uri":"urn:agentenv:install/v1"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := card.Parse(text)
		if err != nil {
			return
		}
		for _, host := range []bool{true, false} {
			r, err := recipeOf(c, host)
			if err == nil && (len(r.commands) == 0 || r.port < 1 || r.port > 65535) {
				t.Errorf("%s: %+v", text, r)
			}
			if err != nil && !fault.Is(err, fault.Invalid, fault.Unsupported) {
				t.Error(err)
			}
		}
	})
}
