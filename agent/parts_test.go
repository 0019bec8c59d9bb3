package agent_test

import (
	"strings"
	"testing"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
)

func TestParseParts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want, says string }{
		"none":            {`[]`, `[]`, ""},
		"as they are":     {`[{"text":"a","kind":"text","metadata":{"x":1.0}},{"kind":"data","data":{}}]`, `[{"text":"a","kind":"text","metadata":{"x":1.0}},{"kind":"data","data":{}}]`, ""},
		"no kind":         {`[{"text":"a"},{"metadata":null,"file":{"uri":"u"}}]`, `[{"kind":"text","text":"a"},{"kind":"file","metadata":null,"file":{"uri":"u"}}]`, ""},
		"a file":          {`[{"kind":"file","file":{"bytes":"AAAA","mimeType":"image/png","name":"a.png","uri":null}}]`, `[{"kind":"file","file":{"bytes":"AAAA","mimeType":"image/png","name":"a.png","uri":null}}]`, ""},
		"no list":         {`{}`, "", "parts must be a list"},
		"no object":       {`[{"text":"a"},"b"]`, "", "parts[1] must be an object"},
		"nothing":         {`[{}]`, "", "parts[0] needs a"},
		"another kind":    {`[{"kind":"song"}]`, "", `parts[0] has the kind "song"`},
		"text of number":  {`[{"kind":"text","text":1}]`, "", "parts[0] is a text part"},
		"data of list":    {`[{"kind":"data","data":[]}]`, "", "parts[0] is a data part"},
		"bad metadata":    {`[{"kind":"text","text":"a","metadata":1}]`, "", "parts[0] has metadata"},
		"file of text":    {`[{"kind":"file","file":"a"}]`, "", "parts[0] is a file part"},
		"both":            {`[{"kind":"file","file":{"bytes":"AAAA","uri":"u"}}]`, "", "exactly one of bytes and uri"},
		"neither":         {`[{"kind":"file","file":{}}]`, "", "exactly one of bytes and uri"},
		"uri of number":   {`[{"kind":"file","file":{"uri":1}}]`, "", "uri is no text"},
		"bytes of number": {`[{"kind":"file","file":{"bytes":1}}]`, "", "bytes are no text"},
		"broken lines":    {`[{"kind":"file","file":{"bytes":"AAAA\nAA==\n"}}]`, `[{"kind":"file","file":{"bytes":"AAAA\nAA==\n"}}]`, ""},
		"empty file":      {`[{"kind":"file","file":{"bytes":""}}]`, `[{"kind":"file","file":{"bytes":""}}]`, ""},
		"of a seed":       {`[{"kind":"file","file":{"bytes":"<picture>"}}]`, `[{"kind":"file","file":{"bytes":"<picture>"}}]`, ""},
		"no base64":       {`[{"kind":"text","text":"a"},{"kind":"file","file":{"bytes":"not base64!"}}]`, "", "parts[1] is a file part whose bytes are no base64"},
		"unpadded":        {`[{"kind":"file","file":{"bytes":"AA"}}]`, "", "no base64"},
		"URL alphabet":    {`[{"kind":"file","file":{"bytes":"__--"}}]`, "", "no base64"},
		"more behind":     {`[{"kind":"file","file":{"bytes":"AA==AA=="}}]`, "", "no base64"},
		"name of number":  {`[{"kind":"file","file":{"uri":"u","name":1}}]`, "", `"name" is no text`},
	} {
		v, err := doc.Parse([]byte(c.in), doc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := agent.ParseParts(v)
		if c.says != "" {
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		list := make([]any, len(got))
		for i, p := range got {
			list[i] = p
		}
		if text, _ := doc.Compact(list); err != nil || string(text) != c.want {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}
