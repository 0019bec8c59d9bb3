package bundle

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"syscall"
	"time"

	"github.com/pelletier/go-toml/v2"

	"agentenv/fault"
	"agentenv/store/doc"
)

// Limits of the small files a bundle is described by.
const (
	maxConfigFile  = 8 << 20
	maxConfigDepth = 200
)

// readConfig reads a small regular file; it never waits on a pipe.
func readConfig(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fault.Reason(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fault.Reason(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err != nil {
		return nil, fault.Reason(err)
	}
	if len(text) > maxConfigFile {
		return nil, fmt.Errorf("larger than %d MiB", maxConfigFile>>20)
	}
	return text, nil
}

// parseTOML reads TOML text into a document value with sorted keys; dates become ISO text.
func parseTOML(text []byte) (*doc.Object, error) {
	if len(text) >= 3 && text[0] == 0xEF && text[1] == 0xBB && text[2] == 0xBF {
		text = text[3:]
	}
	if deep(text) {
		return nil, fault.New(fault.Invalid, "not valid TOML: nested too deeply")
	}
	var m map[string]any
	if err := toml.Unmarshal(text, &m); err != nil {
		var d *toml.DecodeError
		if errors.As(err, &d) {
			row, col := d.Position()
			return nil, fault.New(fault.Invalid, "not valid TOML: %s (at line %d, column %d)", printable(trimTOML(d.Error())), row, col)
		}
		return nil, fault.New(fault.Invalid, "not valid TOML: %s", printable(trimTOML(err.Error())))
	}
	v, err := fromTOML(m, 0)
	if err != nil {
		return nil, fault.New(fault.Invalid, "not valid TOML: %s", err)
	}
	return v.(*doc.Object), nil
}

func trimTOML(s string) string {
	const p = "toml: "
	if len(s) > len(p) && s[:len(p)] == p {
		return s[len(p):]
	}
	return s
}

// deep looks for brackets nested beyond the limit before a parser follows them.
func deep(text []byte) bool {
	depth := 0
	var quote byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == '\\' && quote == '"' {
				i++
			} else if c == quote || c == '\n' {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '[' || c == '{':
			if depth++; depth > maxConfigDepth {
				return true
			}
		case (c == ']' || c == '}') && depth > 0:
			depth--
		}
	}
	return false
}

func fromTOML(v any, depth int) (any, error) {
	if depth > maxConfigDepth {
		return nil, errors.New("nested too deeply")
	}
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		o := &doc.Object{}
		for _, k := range keys {
			x, err := fromTOML(v[k], depth+1)
			if err != nil {
				return nil, err
			}
			o.Set(k, x)
		}
		return o, nil
	case []any:
		out := make([]any, len(v))
		for i := range v {
			x, err := fromTOML(v[i], depth+1)
			if err != nil {
				return nil, err
			}
			out[i] = x
		}
		return out, nil
	case string, bool:
		return v, nil
	case int64:
		return doc.Int(v), nil
	case float64:
		n := doc.Float(v)
		if !n.Finite() {
			return nil, fmt.Errorf("%s is no number a document can hold", n)
		}
		return n, nil
	case time.Time:
		return isoTime(v), nil
	case toml.LocalDate:
		return v.String(), nil
	case toml.LocalTime:
		return isoClock(v), nil
	case toml.LocalDateTime:
		return v.LocalDate.String() + "T" + isoClock(v.LocalTime), nil
	}
	return nil, fmt.Errorf("a value of the kind %T", v)
}

// isoClock writes a time of day with six digits of a fraction, or none.
func isoClock(t toml.LocalTime) string {
	s := fmt.Sprintf("%02d:%02d:%02d", t.Hour, t.Minute, t.Second)
	if t.Nanosecond/1000 > 0 {
		s += fmt.Sprintf(".%06d", t.Nanosecond/1000)
	}
	return s
}

func isoTime(t time.Time) string {
	s := t.Format("2006-01-02T15:04:05")
	if t.Nanosecond()/1000 > 0 {
		s += fmt.Sprintf(".%06d", t.Nanosecond()/1000)
	}
	return s + t.Format("-07:00")
}
