package pattern

import (
	"fmt"
	"strings"
	"unicode"
)

// group parses what an opening parenthesis begins. Comments and flags of the whole pattern are no item (not ok); flags are
// taken only where start says that nothing came before.
func (p *pythonPattern) group(f *flags, start bool) (piece, bool) {
	at := p.pos - 1
	if !p.match('?') {
		return p.capture(*f, "", at), true
	}
	c := p.get()
	switch c {
	case -1:
		p.fail(p.pos, "unexpected end of pattern")
	case 'P':
		return p.named(*f, at), true
	case ':':
		return p.inside(*f, "(?:", at), true
	case '>':
		return p.inside(*f, "(?>", at), true
	case '#':
		if !p.comment(')') {
			p.fail(at, "missing ), unterminated comment")
		}
		return piece{}, false
	case '=', '!':
		return zeroWidth(p.inside(*f, "(?"+string(c), at)), true
	case '<':
		return p.lookBehind(*f, at), true
	case '(':
		return p.condition(*f, at), true
	}
	if c != '-' && !strings.ContainsRune("aiLmstux", c) {
		p.fail(at+1, "unknown extension ?%c", c)
	}
	scoped, isScoped := p.inlineFlags(c, *f)
	if isScoped {
		return p.inside(scoped, "(?:", at), true
	}
	if !start {
		p.fail(at, "global flags not at the start of the expression")
	}
	*f = scoped
	return piece{}, false
}

// comment passes over a comment and its end. As everywhere, a character behind a backslash ends nothing.
func (p *pythonPattern) comment(end rune) (ended bool) {
	for r := p.get(); r != end; r = p.get() {
		if r == '\\' {
			if at := p.pos - 1; p.get() < 0 {
				p.fail(at, "bad escape (end of pattern)")
			}
		}
		if r < 0 {
			return false
		}
	}
	return true
}

func zeroWidth(it piece) piece { return piece{text: it.text} }

// inside parses the rest of a group and closes it.
func (p *pythonPattern) inside(f flags, open string, at int) piece {
	it := p.alternatives(f, false)
	if !p.match(')') {
		p.fail(at, "missing ), unterminated subpattern")
	}
	it.text = open + it.text + ")"
	return it
}

func (p *pythonPattern) capture(f flags, name string, at int) piece {
	n := len(p.groups)
	if name != "" {
		if before, dup := p.names[name]; dup {
			p.fail(at+4, "redefinition of group name '%s' as group %d; was group %d", name, n, before)
		}
		p.names[name] = n
	}
	p.groups = append(p.groups, group{open: true})
	it := p.inside(f, fmt.Sprintf("(?<%d>", n), at)
	p.groups[n] = group{min: it.min, max: it.max}
	return it
}

// named parses (?P<name>…) and (?P=name).
func (p *pythonPattern) named(f flags, at int) piece {
	switch c := p.get(); c {
	case '<':
		name := p.until('>', "group name")
		if !identifier(name) {
			p.fail(at+4, "bad character in group name '%s'", name)
		}
		return p.capture(f, name, at)
	case '=':
		name := p.until(')', "group name")
		if !identifier(name) {
			p.fail(at+4, "bad character in group name '%s'", name)
		}
		n, there := p.names[name]
		if !there {
			p.fail(at+4, "unknown group name '%s'", name)
		}
		return p.refer(n, at+4, f)
	case -1:
		p.fail(p.pos, "unexpected end of pattern")
	default:
		p.fail(at+1, "unknown extension ?P%c", c)
	}
	return piece{}
}

func identifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.In(r, unicode.Nd, unicode.Mn, unicode.Mc, unicode.Pc)) {
			return false
		}
	}
	return s != ""
}

func (p *pythonPattern) lookBehind(f flags, at int) piece {
	c := p.get()
	if c < 0 {
		p.fail(p.pos, "unexpected end of pattern")
	}
	if c != '=' && c != '!' {
		p.fail(at+1, "unknown extension ?<%c", c)
	}
	outer := p.behind == 0
	if outer {
		p.behind = len(p.groups)
	}
	it := p.inside(f, "(?<"+string(c), at)
	if outer {
		p.behind = 0
	}
	if it.min != it.max {
		panic(plainError("look-behind requires fixed-width pattern"))
	}
	return zeroWidth(it)
}

// condition parses (?(group)yes|no).
func (p *pythonPattern) condition(f flags, at int) piece {
	from := p.pos
	name := p.until(')', "group name")
	n, there := p.names[name]
	switch {
	case there:
	case identifier(name):
		p.fail(from, "unknown group name '%s'", name)
	case strings.Trim(name, digits) != "":
		p.fail(from, "bad character in group name '%s'", name)
	default:
		if n = p.number(name, 0); n == 0 {
			p.fail(from, "bad group number")
		}
		if _, seen := p.asked[n]; !seen {
			p.asked[n] = from
		}
	}
	p.outsideBehind(n)
	p.nested++
	yes, no := p.sequence(&f, false), piece{}
	if p.match('|') {
		if no = p.sequence(&f, false); p.next() == '|' {
			p.fail(p.pos, "conditional backref with more than two branches")
		}
	}
	p.nested--
	if !p.match(')') {
		p.fail(at, "missing ), unterminated subpattern")
	}
	return piece{text: fmt.Sprintf("(?(%d)%s|%s)", n, yes.text, no.text), min: min(yes.min, no.min), max: max(yes.max, no.max)}
}

// inlineFlags reads flags from c on, up to the colon of a group (scoped) or the parenthesis of the whole pattern's flags.
func (p *pythonPattern) inlineFlags(c rune, f flags) (out flags, scoped bool) {
	var on, off string
	for ; c != '-' && c != ':' && c != ')'; c = p.get() {
		switch {
		case c < 0:
			p.fail(p.pos, "missing -, : or )")
		case c == 'L':
			p.fail(p.pos, "bad inline flags: cannot use 'L' flag with a str pattern")
		case !strings.ContainsRune("aimstux", c):
			p.fail(p.pos-1, "%s", pick(unicode.IsLetter(c), "unknown flag", "missing -, : or )"))
		}
		on += string(c)
	}
	if strings.Contains(on, "a") && strings.Contains(on, "u") {
		p.fail(p.pos-1, "bad inline flags: flags 'a', 'u' and 'L' are incompatible")
	}
	scoped = c != ')'
	if c == '-' {
		for c = p.get(); c != ':' || off == ""; c = p.get() {
			switch {
			case c >= 0 && strings.ContainsRune("auL", c):
				p.fail(p.pos, "bad inline flags: cannot turn off flags 'a', 'u' and 'L'")
			case c < 0 || !strings.ContainsRune("imstx", c):
				p.fail(p.pos, "%s", pick(unicode.IsLetter(c), "unknown flag", pick(off == "", "missing flag", "missing :")))
			}
			off += string(c)
		}
	}
	if strings.ContainsAny(off, on) {
		p.fail(p.pos-1, "bad inline flags: flag turned on and off")
	}
	for _, r := range on + off {
		set := strings.ContainsRune(on, r)
		switch r {
		case 'i':
			f.ignoreCase = set
		case 'm':
			f.multiline = set
		case 's':
			f.dotAll = set
		case 'x':
			f.verbose = set
		case 'a':
			f.ascii = true
		case 'u':
			f.ascii = false
		}
	}
	if !scoped { // the whole pattern is of one kind
		p.ascii = p.ascii || strings.Contains(on, "a")
		p.unicode = p.unicode || strings.Contains(on, "u")
		if p.ascii && p.unicode {
			panic(plainError("ASCII and UNICODE flags are incompatible"))
		}
	}
	return f, scoped
}
