// Package pattern reads regular expressions as Python's re module takes them, for documents that were written for it.
package pattern

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"golang.org/x/text/unicode/runenames"
)

// Compile reads a pattern as Python's re module (3.11) does. The pattern is parsed whole and written anew for regexp2, which
// follows .NET: flags are resolved here, so that no option of regexp2 changes what a part means. The error says what Python has against
// the pattern and where. The result backtracks: set its MatchTimeout before matching text from outside. Safe for concurrent use.
func Compile(pattern string) (*regexp2.Regexp, error) { return CompileWith(pattern) }

// CompileWith is Compile with flags by the names of the re module, long or short (IGNORECASE or I, MULTILINE, DOTALL or S, VERBOSE or X,
// ASCII, UNICODE). A name that is none is an error.
func CompileWith(pattern string, names ...string) (*regexp2.Regexp, error) {
	f, err := flagsOf(names)
	if err != nil {
		return nil, err
	}
	text, err := translate(pattern, f)
	if err != nil {
		return nil, err
	}
	return regexp2.Compile(text, regexp2.None)
}

func flagsOf(names []string) (f flags, err error) {
	for _, n := range names {
		switch n {
		case "IGNORECASE", "I":
			f.ignoreCase = true
		case "MULTILINE", "M":
			f.multiline = true
		case "DOTALL", "S":
			f.dotAll = true
		case "VERBOSE", "X":
			f.verbose = true
		case "ASCII", "A":
			f.ascii = true
		case "UNICODE", "U":
		default:
			return f, plainError("unknown flag " + n)
		}
	}
	return f, nil
}

// patternError is why Python does not take a pattern.
type patternError struct {
	msg string
	at  int // -1: nowhere
	in  []rune
}

func (e *patternError) Error() string {
	if e.at < 0 {
		return e.msg
	}
	text := fmt.Sprintf("%s at position %d", e.msg, e.at)
	if slices.Contains(e.in, '\n') {
		before := string(e.in[:e.at])
		column := e.at - utf8.RuneCountInString(before[:strings.LastIndexByte(before, '\n')+1]) + 1
		text += fmt.Sprintf(" (line %d, column %d)", 1+strings.Count(before, "\n"), column)
	}
	return text
}

func plainError(msg string) *patternError { return &patternError{msg, -1, nil} }

// Reason returns why Compile refused a pattern, without the pattern that regexp2 repeats in front.
func Reason(err error) string {
	s := err.Error()
	if ours := new(patternError); errors.As(err, &ours) {
		return s
	}
	if i := strings.Index(s, "`: "); i >= 0 {
		return s[i+3:]
	}
	return strings.TrimPrefix(s, "error parsing regexp: ")
}

// unlimited is the number of times, or the width, that has no bound.
const unlimited = 1<<32 - 1

// maxNested bounds the nesting of groups, so that no pattern exhausts the stack.
const maxNested = 500

type flags struct{ ignoreCase, multiline, dotAll, verbose, ascii bool }

// piece is one parsed item: its text for regexp2, which a quantifier can follow, and how many characters it matches.
type piece struct {
	text     string
	min, max int
	anchor   bool // ^, $, \b and their like: nothing to repeat
	repeated bool
}

type group struct {
	open     bool
	min, max int
}

type pythonPattern struct {
	in      []rune
	pos     int
	nested  int
	groups  []group // [0] is the whole
	names   map[string]int
	asked   map[int]int // groups that conditions name, and where
	behind  int         // how many groups there were before the outermost look-behind, 0 outside of one
	ascii   bool        // (?a) was given for the whole
	unicode bool        // (?u) was
}

func translate(pattern string, f flags) (text string, err error) {
	p := &pythonPattern{in: []rune(pattern), groups: make([]group, 1), names: map[string]int{}, asked: map[int]int{}}
	defer func() {
		if r := recover(); r != nil {
			e, ours := r.(*patternError)
			if !ours {
				panic(r)
			}
			text, err = "", e
		}
	}()
	whole := p.alternatives(f, true)
	if p.pos < len(p.in) {
		p.fail(p.pos, "unbalanced parenthesis")
	}
	for g, at := range p.asked {
		if g >= len(p.groups) {
			p.fail(at, "invalid group reference %d", g)
		}
	}
	return whole.text, nil
}

func (p *pythonPattern) fail(at int, format string, args ...any) {
	panic(&patternError{fmt.Sprintf(format, args...), at, p.in})
}

// next is the rune at the position, -1 at the end.
func (p *pythonPattern) next() rune {
	if p.pos < len(p.in) {
		return p.in[p.pos]
	}
	return -1
}

func (p *pythonPattern) get() rune {
	r := p.next()
	if r >= 0 {
		p.pos++
	}
	return r
}

func (p *pythonPattern) match(r rune) bool {
	if p.next() != r {
		return false
	}
	p.pos++
	return true
}

// while takes at most n runes that are in set.
func (p *pythonPattern) while(n int, set string) string {
	from := p.pos
	for p.pos-from < n && p.pos < len(p.in) && strings.ContainsRune(set, p.in[p.pos]) {
		p.pos++
	}
	return string(p.in[from:p.pos])
}

func (p *pythonPattern) until(end rune, what string) string {
	from := p.pos
	for p.pos < len(p.in) && p.in[p.pos] != end {
		p.pos++
	}
	s := string(p.in[from:p.pos])
	if p.pos == from {
		p.fail(from, "missing %s", what)
	}
	if !p.match(end) {
		p.fail(from, "missing %c, unterminated name", end)
	}
	return s
}

func plus(a, b int) int { return min(a+b, unlimited) }

// alternatives parses up to the end or a closing parenthesis. Whole is set for the pattern itself, whose start may hold flags.
func (p *pythonPattern) alternatives(f flags, whole bool) piece {
	if p.nested++; p.nested > maxNested {
		p.fail(p.pos, "groups are nested too deeply")
	}
	defer func() { p.nested-- }()
	out := p.sequence(&f, whole)
	for p.match('|') {
		s := p.sequence(&f, false)
		out = piece{text: out.text + "|" + s.text, min: min(out.min, s.min), max: max(out.max, s.max)}
	}
	return out
}

// sequence parses up to the next alternative. Flags of the whole pattern, which only its start may hold, are set in f.
func (p *pythonPattern) sequence(f *flags, start bool) piece {
	var items []piece
	for {
		at, c := p.pos, p.next()
		if c < 0 || c == '|' || c == ')' {
			break
		}
		p.pos++
		if f.verbose && strings.ContainsRune(" \t\n\r\v\f", c) {
			continue
		}
		if f.verbose && c == '#' {
			p.comment('\n')
			continue
		}
		switch c {
		case '\\':
			items = append(items, p.escape(*f))
		case '[':
			items = append(items, p.class(*f))
		case '.':
			items = append(items, piece{text: pick(f.dotAll, `[\s\S]`, `[^\n]`), min: 1, max: 1})
		case '^':
			items = append(items, piece{text: pick(f.multiline, `(?:\A|(?<=\n))`, `\A`), anchor: true})
		case '$':
			items = append(items, piece{text: pick(f.multiline, `(?=\n|\z)`, `(?=\n?\z)`), anchor: true})
		case '(':
			if it, ok := p.group(f, start && len(items) == 0); ok {
				items = append(items, it)
			}
		case '*', '+', '?', '{':
			lo, hi, ok := p.count(c)
			if !ok {
				items = append(items, literal('{', *f))
				continue
			}
			if len(items) == 0 || items[len(items)-1].anchor {
				p.fail(at, "nothing to repeat")
			}
			last := &items[len(items)-1]
			if last.repeated {
				p.fail(at, "multiple repeat")
			}
			*last = p.repeat(*last, lo, hi)
		default:
			items = append(items, literal(c, *f))
		}
	}
	var b strings.Builder
	out := piece{}
	for _, it := range items {
		b.WriteString(it.text)
		out.min, out.max = plus(out.min, it.min), plus(out.max, it.max)
	}
	out.text = b.String()
	return out
}

func pick(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// count reads a quantifier; a brace that begins none is not ok.
func (p *pythonPattern) count(c rune) (lo, hi int, ok bool) {
	switch c {
	case '*':
		return 0, unlimited, true
	case '+':
		return 1, unlimited, true
	case '?':
		return 0, 1, true
	}
	if p.next() == '}' {
		return 0, 0, false
	}
	from := p.pos
	low, high := p.while(len(p.in), digits), ""
	if p.match(',') {
		high = p.while(len(p.in), digits)
	} else {
		high = low
	}
	if !p.match('}') {
		p.pos = from
		return 0, 0, false
	}
	lo, hi = p.number(low, 0), p.number(high, unlimited)
	if hi < lo {
		p.fail(from, "min repeat greater than max repeat")
	}
	return lo, hi, true
}

func (p *pythonPattern) number(s string, none int) int {
	if s == "" {
		return none
	}
	n := 0
	for _, d := range s {
		if n = n*10 + int(d-'0'); n >= unlimited {
			panic(plainError("the repetition number is too large"))
		}
	}
	return n
}

// maxCount is the largest number that regexp2 takes in a quantifier.
const maxCount = 1<<31 - 2

func (p *pythonPattern) repeat(it piece, lo, hi int) piece {
	text := it.text
	if strings.HasPrefix(text, "(?=") || strings.HasPrefix(text, "(?!") || strings.HasPrefix(text, "(?<") || text == "" {
		text = "(?:" + text + ")"
	}
	switch {
	case lo == 0 && hi == unlimited:
		text += "*"
	case lo == 1 && hi == unlimited:
		text += "+"
	case hi > maxCount:
		text += fmt.Sprintf("{%d,}", min(lo, maxCount))
	default:
		text += fmt.Sprintf("{%d,%d}", lo, hi)
	}
	if p.match('?') {
		text += "?"
	} else if p.match('+') {
		text = "(?>" + text + ")"
	}
	return piece{text: text, min: times(it.min, lo), max: times(it.max, hi), repeated: true}
}

func times(a, b int) int {
	if a == 0 || b == 0 {
		return 0
	}
	if a > unlimited/b {
		return unlimited
	}
	return a * b
}

// literal matches one character, in all its cases where case does not count.
func literal(r rune, f flags) piece {
	out := piece{min: 1, max: 1}
	switch all := cases(r, f); {
	case r >= 0xD800 && r < 0xE000: // text holds no surrogates
		out.text = "(?!)"
	case len(all) == 1:
		out.text = quoteRune(r)
	default:
		out.text = "["
		for _, c := range all {
			out.text += quoteRune(c)
		}
		out.text += "]"
	}
	return out
}

func quoteRune(r rune) string {
	if r >= 0x80 || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return string(r)
	}
	return fmt.Sprintf(`\x%02x`, r)
}

// cases lists what a character matches, itself first: what Python adds to plain folding are the Turkish i's.
func cases(r rune, f flags) []rune {
	out := []rune{r}
	if !f.ignoreCase {
		return out
	}
	if !f.ascii && strings.ContainsRune("iIİı", r) {
		return []rune("iIİı")
	}
	for c := unicode.SimpleFold(r); c != r; c = unicode.SimpleFold(c) {
		if !f.ascii || c < 0x80 && r < 0x80 {
			out = append(out, c)
		}
	}
	return out
}

const (
	digits = "0123456789"
	octal  = "01234567"
	hexes  = "0123456789abcdefABCDEF"
)

// category is the inside of a class for \d, \s or \w.
func category(c rune, f flags) string {
	switch c {
	case 'd':
		return pick(f.ascii, "0-9", `\p{Nd}`)
	case 's':
		return `\t-\r\x20` + pick(f.ascii, "", `\x1c-\x1f\x85\xa0\p{Zs}\u2028\u2029`)
	}
	return pick(f.ascii, "a-zA-Z0-9_", `\p{L}\p{N}_`)
}

func (p *pythonPattern) escape(f flags) piece {
	at := p.pos - 1
	c := p.get()
	switch c {
	case -1:
		p.fail(at, "bad escape (end of pattern)")
	case 'A':
		return piece{text: `\A`, anchor: true}
	case 'Z':
		return piece{text: `\z`, anchor: true}
	case 'b', 'B':
		w := "[" + category('w', f) + "]"
		if c == 'b' {
			return piece{text: fmt.Sprintf(`(?:(?<=%[1]s)(?!%[1]s)|(?<!%[1]s)(?=%[1]s))`, w), anchor: true}
		}
		return piece{text: fmt.Sprintf(`(?:(?<=%[1]s)(?=%[1]s)|(?<!%[1]s)(?!%[1]s)(?:(?<=[\s\S])|(?=[\s\S])))`, w), anchor: true}
	case 'd', 's', 'w':
		return piece{text: "[" + category(c, f) + "]", min: 1, max: 1}
	case 'D', 'S', 'W':
		return piece{text: "[^" + category(unicode.ToLower(c), f) + "]", min: 1, max: 1}
	case '0':
		return literal(rune(p.base("0"+p.while(2, octal), 8)), f)
	}
	if c >= '1' && c <= '9' {
		return p.reference(c, at, f)
	}
	return literal(p.character(c, at), f)
}

func (p *pythonPattern) base(s string, base int) int {
	n := 0
	for _, d := range strings.ToLower(s) {
		n = n*base + strings.IndexRune(hexes, d)
	}
	return n
}

// reference reads what begins with \1 to \9: three octal digits are a character, else it is a group.
func (p *pythonPattern) reference(c rune, at int, f flags) piece {
	s := string(c)
	if more := p.while(1, digits); more != "" {
		s += more
		if strings.ContainsRune(octal, c) && strings.Contains(octal, more) {
			if third := p.while(1, octal); third != "" {
				n := p.base(s+third, 8)
				if n > 0o377 {
					p.fail(at, `octal escape value \%s outside of range 0-0o377`, s+third)
				}
				return literal(rune(n), f)
			}
		}
	}
	n := p.base(s, 10)
	if n >= len(p.groups) {
		p.fail(at+1, "invalid group reference %d", n)
	}
	return p.refer(n, at, f)
}

func (p *pythonPattern) refer(n, at int, f flags) piece {
	if p.groups[n].open {
		p.fail(at, "cannot refer to an open group")
	}
	p.outsideBehind(n)
	text := fmt.Sprintf(`(?:\k<%d>)`, n)
	if f.ignoreCase {
		text = fmt.Sprintf(`(?i:\k<%d>)`, n)
	}
	return piece{text: text, min: p.groups[n].min, max: p.groups[n].max}
}

func (p *pythonPattern) outsideBehind(n int) {
	if p.behind == 0 {
		return
	}
	if n >= len(p.groups) || p.groups[n].open {
		p.fail(p.pos, "cannot refer to an open group")
	}
	if n >= p.behind {
		p.fail(p.pos, "cannot refer to group defined in the same lookbehind subpattern")
	}
}

// character reads an escape that is one character both in and outside of a class.
func (p *pythonPattern) character(c rune, at int) rune {
	if i := strings.IndexRune("afnrtv", c); i >= 0 {
		return rune("\a\f\n\r\t\v"[i])
	}
	size := map[rune]int{'x': 2, 'u': 4, 'U': 8}[c]
	switch {
	case size > 0:
		s := p.while(size, hexes)
		if len(s) != size {
			p.fail(at, `incomplete escape \%c%s`, c, s)
		}
		n := p.base(s, 16)
		if n > unicode.MaxRune {
			p.fail(at, `bad escape \%c%s`, c, s)
		}
		return rune(n)
	case c == 'N':
		if !p.match('{') {
			p.fail(p.pos, "missing {")
		}
		name := p.until('}', "character name")
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if strings.EqualFold(runenames.Name(r), name) && !strings.HasPrefix(name, "<") {
				return r
			}
		}
		p.fail(at, "undefined character name '%s'", name)
	case c < 0x80 && unicode.IsLetter(c) || c >= '0' && c <= '9':
		p.fail(at, `bad escape \%c`, c)
	}
	return c
}
