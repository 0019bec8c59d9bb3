package cli

import (
	"strings"
	"testing"

	"agentenv/fault"
	"agentenv/store/doc"
)

// TestSeeds reads sound and odd files of seeds.
func TestSeeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"rows", "name,v\nx,u\ny,w\n", `[{"name":"x","v":"u"},{"name":"y","v":"w"}]`},
		{"no line end", "name\nx", `[{"name":"x"}]`},
		{"mark of the encoding", "\uFEFFname,v\nx,u\n", `[{"name":"x","v":"u"}]`},
		{"CRLF", "name,v\r\nx,u\r\n", `[{"name":"x","v":"u"}]`},
		{"CR", "name,v\rx,u\ry,w\r", `[{"name":"x","v":"u"},{"name":"y","v":"w"}]`},
		{"quoted line ends stay", "name,v\n\"x\",\"a\nb\"\n\"y\",\"a\r\nb\"\n", `[{"name":"x","v":"a\nb"},{"name":"y","v":"a\r\nb"}]`},
		{"quotes", "name,v\nx,\"a\"\"b,c\"\ny,a\"b\"c\nz, \"u\"\n", `[{"name":"x","v":"a\"b,c"},{"name":"y","v":"a\"b\"c"},{"name":"z","v":" \"u\""}]`},
		{"empty rows", "\n\nname,v\n\n,\n\"\",\"\"\nx,\n  , \n\n", `[{"name":"x","v":""},{"name":"  ","v":" "}]`},
		{"a row that ends early", "name,v\nx\n", `[{"name":"x","v":null}]`},
		{"a column without a name", ",v\n0,u\n", `[{"":"0","v":"u"}]`},
		{"blanks belong to names and values", "name, v\nx, u\n", `[{"name":"x"," v":" u"}]`},
	} {
		got, err := parseSeeds("s.csv", []byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		list := make([]any, len(got))
		for i, s := range got {
			list[i] = s
		}
		want, err := doc.Parse([]byte(c.want), doc.Options{})
		if err != nil || !doc.Equal(list, want) {
			t.Errorf("%s: %v, want %s", c.name, doc.Canonical(list), c.want)
		}
	}
	for _, c := range []struct{ text, why string }{
		{"", "it is empty"},
		{"\uFEFF\n,\n", "it is empty"},
		{"name,v\n,\n", "there is no value below"},
		{"name,v,v\nx,1,2\n", `s.csv, line 1: two columns are named "v"`},
		{"\nname,v\nx,\"a\nb\"\ny,u,w\n", "s.csv, line 5: 3 values for 2 columns"},
		{"name,v\nx,\"u\n", "line 2: a value begins with a quote and never ends"},
		{"name,v\n\"x\ny\",\"a\"b\n", "line 3: a quoted value goes on after its quote"},
		{"name\n\xff\n", "not UTF-8"},
	} {
		if got, err := parseSeeds("s.csv", []byte(c.text)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q: %v, %v", c.text, got, err)
		}
	}
}

// FuzzSeeds holds: every row that is read is a map of the same names with a value in it, and writing it as CSV and reading it again gives
// the same.
func FuzzSeeds(f *testing.F) {
	for _, s := range []string{"", "a,b\n1,2\n", "\uFEFFa\r\n\"x\"\"y\r\nz\"\r\n", "a,a\n", "a\n\"x", "a,b\n1\n\n,\r2,\"\"\n", "a\n1,2\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		seeds, err := parseSeeds("s.csv", text)
		if err != nil {
			return
		}
		if len(seeds) == 0 {
			t.Fatal("neither seeds nor an error")
		}
		var b strings.Builder
		quoted := func(s string) { b.WriteString(`"` + strings.ReplaceAll(s, `"`, `""`) + `"`) }
		names := seeds[0].Keys()
		row := func(value func(name string) (string, bool)) {
			for i, name := range names {
				v, there := value(name)
				if !there {
					break
				}
				if i > 0 {
					b.WriteByte(',')
				}
				quoted(v)
			}
			b.WriteByte('\n')
		}
		row(func(name string) (string, bool) { return name, true })
		for _, s := range seeds {
			row(func(name string) (string, bool) { v, there := s.Value(name).(string); return v, there })
		}
		again, err := parseSeeds("s.csv", []byte(b.String()))
		if err != nil || len(again) != len(seeds) {
			t.Fatalf("%d rows were read and %d again: %v\n%q", len(seeds), len(again), err, b.String())
		}
		for i := range seeds {
			if !doc.Equal(seeds[i], again[i]) {
				t.Fatalf("%s was read, and %s again", doc.Canonical(seeds[i]), doc.Canonical(again[i]))
			}
		}
	})
}
