package verify

import (
	"regexp"
	"strings"

	"github.com/dlclark/regexp2"
)

// compile reads a pattern as Python's re module does where regexp2 (which follows .NET) differs: \Z is the very end, $ the
// end or before a last newline (the same in both), (?P<name>…), (?P=name) and (?P>…) name groups, and {,n} counts from 0.
func compile(pattern string) (*regexp2.Regexp, error) {
	return regexp2.Compile(translate(pattern), regexp2.None)
}

var openCount = regexp.MustCompile(`^\{,(\d+)\}`)

func translate(p string) string {
	var b strings.Builder
	class := false
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == '\\' && i+1 < len(p):
			i++
			if p[i] == 'Z' && !class {
				b.WriteString(`\z`)
			} else {
				b.WriteByte('\\')
				b.WriteByte(p[i])
			}
		case class:
			if c == '[' {
				// Python takes a bracket inside a class as itself; .NET would start a subtraction after "-".
				b.WriteByte('\\')
			}
			b.WriteByte(c)
			class = c != ']'
		case c == '[':
			class = true
			b.WriteByte(c)
			if strings.HasPrefix(p[i+1:], "^") {
				b.WriteByte('^')
				i++
			}
			if strings.HasPrefix(p[i+1:], "]") {
				b.WriteString(`\]`)
				i++
			}
		case strings.HasPrefix(p[i:], "(?P<"):
			b.WriteString("(?<")
			i += 3
		case strings.HasPrefix(p[i:], "(?P="):
			end := strings.IndexByte(p[i:], ')')
			if end < 0 {
				b.WriteByte(c)
				continue
			}
			b.WriteString(`\k<` + p[i+4:i+end] + ">")
			i += end
		case c == '{':
			if m := openCount.FindStringSubmatch(p[i:]); m != nil {
				b.WriteString("{0," + m[1] + "}")
				i += len(m[0]) - 1
				continue
			}
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
