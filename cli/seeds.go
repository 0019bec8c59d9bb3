package cli

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"agentenv/fault"
	"agentenv/store/doc"
)

// maxSeedBytes bounds a file of seeds.
const maxSeedBytes = 64 << 20

// parseSeeds reads a CSV file (RFC 4180, UTF-8) whose first row names the columns, and returns one seed for each row with a value in it: a map
// from the names to the texts, null where a row ends early. Lines may end in LF, CRLF or CR; what is quoted stays as it is. Invalid, with the
// line: a column named twice, a row with more values than columns, a quoted value that does not end or goes on after its quote.
func parseSeeds(where string, text []byte) ([]*doc.Object, error) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	if !utf8.Valid(text) {
		return nil, fault.New(fault.Invalid, "%s is not UTF-8", where)
	}
	r := csvReader{text: string(text), line: 1}
	var header []string
	var seeds []*doc.Object
	for {
		line := r.line
		row, more, err := r.row()
		switch {
		case err != nil:
			return nil, fault.At(err, "%s", where)
		case !more && header == nil:
			return nil, fault.New(fault.Invalid, "%s has no rows of seeds: it is empty", where)
		case !more && len(seeds) == 0:
			return nil, fault.New(fault.Invalid, "%s has no rows of seeds: there is no value below the names of its columns", where)
		case !more:
			return seeds, nil
		case empty(row):
			continue
		case header == nil:
			if err := unique(row); err != nil {
				return nil, fault.At(err, "%s, line %d", where, line)
			}
			header = row
			continue
		case len(row) > len(header):
			return nil, fault.New(fault.Invalid, "%s, line %d: %d values for %d columns; quote a value that holds a comma", where, line, len(row), len(header))
		}
		seed := &doc.Object{}
		for i, name := range header {
			if i < len(row) {
				seed.Set(name, row[i])
			} else {
				seed.Set(name, nil)
			}
		}
		seeds = append(seeds, seed)
	}
}

func empty(row []string) bool {
	for _, v := range row {
		if v != "" {
			return false
		}
	}
	return true
}

func unique(names []string) error {
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			return fault.New(fault.Invalid, "two columns are named %q; a seed has one value for each name", name)
		}
		seen[name] = true
	}
	return nil
}

// csvReader reads rows. The standard library's reader will not do: it rewrites line ends inside quoted values, and takes no CR as one.
type csvReader struct {
	text string
	at   int
	line int // of the next row
}

// row returns the next row, also one without values; more is false at the end.
func (r *csvReader) row() (row []string, more bool, err error) {
	if r.at == len(r.text) {
		return nil, false, nil
	}
	for {
		value, err := r.value()
		if err != nil {
			return nil, false, err
		}
		row = append(row, value)
		if r.at == len(r.text) {
			return row, true, nil
		}
		c := r.text[r.at]
		r.at++
		if c == ',' {
			continue
		}
		if c == '\r' && strings.HasPrefix(r.text[r.at:], "\n") {
			r.at++
		}
		r.line++
		return row, true, nil
	}
}

// value returns the value at r.at and stops at the comma or line end after it.
func (r *csvReader) value() (string, error) {
	rest := r.text[r.at:]
	if !strings.HasPrefix(rest, `"`) {
		n := strings.IndexAny(rest, ",\r\n")
		if n < 0 {
			n = len(rest)
		}
		r.at += n
		return rest[:n], nil
	}
	began := r.line
	var b strings.Builder
	for rest = rest[1:]; ; {
		n := strings.IndexByte(rest, '"')
		if n < 0 {
			return "", fault.New(fault.Invalid, "line %d: a value begins with a quote and never ends", began)
		}
		b.WriteString(rest[:n])
		rest = rest[n+1:]
		if !strings.HasPrefix(rest, `"`) {
			break
		}
		b.WriteByte('"')
		rest = rest[1:]
	}
	value := b.String()
	r.line += strings.Count(value, "\n") + strings.Count(value, "\r") - strings.Count(value, "\r\n")
	r.at = len(r.text) - len(rest)
	if rest != "" && !strings.ContainsRune(",\r\n", rune(rest[0])) {
		return "", fault.New(fault.Invalid, "line %d: a quoted value goes on after its quote; double the quotes inside it", r.line)
	}
	return value, nil
}
