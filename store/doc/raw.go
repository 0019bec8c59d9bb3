package doc

import "bytes"

// Raw is the JSON text of a value that was not read. ParseTop makes it and the writing functions put it back as it is; no
// other function knows it, so it must not leave the code that rewrites a document.
type Raw []byte

// ParseTop reads the top level of an object's JSON text. The values of keys that need reports are read as ParseObject does,
// the others are kept as Raw, which costs a fraction: it is for changing a few fields of a large stored document. Text
// that cannot be an object is an Invalid error; what lies inside a Raw is not checked. The result shares nothing with text.
func ParseTop(text []byte, need func(key string) bool) (*Object, error) {
	p := &parser{in: bytes.Clone(text)}
	p.space()
	if p.pos >= len(p.in) || p.in[p.pos] != '{' {
		return nil, p.fail("an object is needed")
	}
	o := &Object{}
	p.pos++
	p.space()
	if p.pos < len(p.in) && p.in[p.pos] == '}' {
		p.pos++
		return o, p.end()
	}
	for {
		p.space()
		if p.pos >= len(p.in) || p.in[p.pos] != '"' {
			return nil, p.fail("a key in double quotes is needed")
		}
		k, err := p.str()
		if err != nil {
			return nil, err
		}
		p.space()
		if p.pos >= len(p.in) || p.in[p.pos] != ':' {
			return nil, p.fail("':' is needed after a key")
		}
		p.pos++
		p.space()
		if need(k) {
			v, err := p.value(1)
			if err != nil {
				return nil, err
			}
			o.Set(k, v)
		} else {
			start := p.pos
			if err := p.skip(); err != nil {
				return nil, err
			}
			o.Set(k, Raw(p.in[start:p.pos:p.pos]))
		}
		p.space()
		switch {
		case p.pos < len(p.in) && p.in[p.pos] == ',':
			p.pos++
		case p.pos < len(p.in) && p.in[p.pos] == '}':
			p.pos++
			return o, p.end()
		default:
			return nil, p.fail("',' or '}' is needed")
		}
	}
}

func (p *parser) end() error {
	p.space()
	if p.pos < len(p.in) {
		return p.fail("something follows the value")
	}
	return nil
}

// skip passes over one value.
func (p *parser) skip() error {
	for depth := 0; p.pos < len(p.in); {
		switch p.in[p.pos] {
		case '{', '[':
			depth++
			p.pos++
		case '}', ']':
			depth--
			p.pos++
		case '"':
			if err := p.skipString(); err != nil {
				return err
			}
		case ' ', '\t', '\r', '\n', ',', ':':
			if depth == 0 {
				return p.fail("a value is needed")
			}
			p.pos++
			continue
		default:
			for p.pos < len(p.in) && bytes.IndexByte([]byte(" \t\r\n,:\"{}[]"), p.in[p.pos]) < 0 {
				p.pos++
			}
		}
		if depth == 0 {
			return nil
		}
		if depth < 0 {
			return p.fail("a value is needed")
		}
	}
	return p.fail("unexpected end")
}

func (p *parser) skipString() error {
	for p.pos++; ; p.pos++ {
		n := bytes.IndexByte(p.in[p.pos:], '"')
		if n < 0 {
			return p.fail("a string without an end")
		}
		slashes := 0
		for at := p.pos + n - 1; at >= p.pos && p.in[at] == '\\'; at-- {
			slashes++
		}
		if p.pos += n; slashes%2 == 0 {
			p.pos++
			return nil
		}
	}
}
