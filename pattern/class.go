package pattern

import (
	"slices"
	"strings"
	"unicode"
)

// class parses a character set behind its bracket.
func (p *pythonPattern) class(f flags) piece {
	at := p.pos - 1
	negated := p.match('^')
	var s set
	for first := true; ; first = false {
		from := p.pos
		c := p.get()
		if c < 0 {
			p.fail(at, "unterminated character set")
		}
		if c == ']' && !first {
			break
		}
		lo, cat := p.member(c)
		if !p.match('-') {
			s.add(lo, lo, cat, f)
			continue
		}
		c = p.get()
		if c < 0 {
			p.fail(at, "unterminated character set")
		}
		if c == ']' {
			s.add(lo, lo, cat, f)
			s.add('-', '-', 0, f)
			break
		}
		hi, cat2 := p.member(c)
		if cat != 0 || cat2 != 0 || hi < lo {
			p.fail(from, "bad character range %s", string(p.in[from:p.pos]))
		}
		s.add(lo, hi, 0, f)
	}
	return piece{text: s.text(negated), min: 1, max: 1}
}

// member reads one member of a class that begins with c: a character, or a category.
func (p *pythonPattern) member(c rune) (r, cat rune) {
	if c != '\\' {
		return c, 0
	}
	at := p.pos - 1
	c = p.get()
	switch {
	case c < 0:
		p.fail(at, "bad escape (end of pattern)")
	case c == 'b':
		return '\b', 0
	case strings.ContainsRune("dDsSwW", c):
		return 0, c
	case strings.ContainsRune(octal, c):
		s := string(c) + p.while(2, octal)
		n := p.base(s, 8)
		if n > 0o377 {
			p.fail(at, `octal escape value \%s outside of range 0-0o377`, s)
		}
		return rune(n), 0
	}
	return p.character(c, at), 0
}

// set gathers a class: what is in it, and the insides of classes whose complements are.
type set struct {
	in  strings.Builder
	not []string
}

// lastCased is beyond every character that has cases.
const lastCased = 0x1E944

func (s *set) add(lo, hi, cat rune, f flags) {
	switch {
	case cat != 0 && unicode.IsLower(cat):
		s.in.WriteString(category(cat, f))
		return
	case cat != 0:
		s.not = append(s.not, category(unicode.ToLower(cat), f))
		return
	}
	s.span(lo, hi)
	if !f.ignoreCase {
		return
	}
	var more []rune
	for r := lo; r <= min(hi, lastCased); r++ {
		for _, c := range cases(r, f) {
			if c < lo || c > hi {
				more = append(more, c)
			}
		}
	}
	slices.Sort(more)
	for _, c := range slices.Compact(more) {
		s.span(c, c)
	}
}

func (s *set) span(lo, hi rune) {
	// Text holds no surrogates, and they cannot be written.
	if lo >= 0xD800 && lo < 0xE000 {
		lo = 0xE000
	}
	if hi >= 0xD800 && hi < 0xE000 {
		hi = 0xD7FF
	}
	if lo > hi {
		return
	}
	s.in.WriteString(quoteRune(lo))
	if lo < hi {
		s.in.WriteString("-" + quoteRune(hi))
	}
}

func (s *set) text(negated bool) string {
	in := s.in.String()
	if len(s.not) == 0 && in != "" {
		return "[" + pick(negated, "^", "") + in + "]"
	}
	var parts []string
	if in != "" {
		parts = append(parts, "["+in+"]")
	}
	for _, n := range s.not {
		parts = append(parts, "[^"+n+"]")
	}
	either := strings.Join(parts, "|")
	switch {
	case either == "":
		return pick(negated, `[\s\S]`, "(?:(?!))")
	case negated:
		return "(?:(?!" + either + `)[\s\S])`
	}
	return "(?:" + either + ")"
}
