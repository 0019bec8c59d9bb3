package agent

import (
	"encoding/base64"
	"fmt"
	"io"
	"regexp"
	"strings"

	"agentenv/fault"
	"agentenv/store/doc"
)

// The kinds of parts. Source: A2A 0.3, section 6.5.
const (
	KindText = "text"
	KindFile = "file"
	KindData = "data"
)

// Text returns a text part.
func Text(s string) *doc.Object { return doc.Of("kind", KindText, "text", s) }

// ParseParts checks a list of A2A parts: text, file (exactly one of bytes, in base64 or with a <placeholder> of a seed, and uri) and data, each with an optional object of metadata. A
// part that names no kind gets the one of its content. It returns them in their order, otherwise as they are. The error is Invalid and names the first bad one as parts[i]. An empty list is good.
func ParseParts(v any) ([]*doc.Object, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fault.New(fault.Invalid, "parts must be a list, not %s", doc.TypeName(v))
	}
	out := make([]*doc.Object, len(list))
	for i, el := range list {
		part, ok := el.(*doc.Object)
		if !ok {
			return nil, fault.New(fault.Invalid, "parts[%d] must be an object, not %s", i, doc.TypeName(el))
		}
		if part.Value("kind") == nil {
			part = withKind(part)
		}
		if why := partProblem(part); why != "" {
			return nil, fault.New(fault.Invalid, "parts[%d] %s", i, why)
		}
		out[i] = part
	}
	return out, nil
}

// withKind gives a part that names no kind the one that its content shows.
func withKind(p *doc.Object) *doc.Object {
	for _, kind := range []string{KindText, KindFile, KindData} {
		if _, there := p.Get(kind); there {
			out := doc.Of("kind", kind)
			for _, k := range p.Keys() {
				if k != "kind" {
					out.Set(k, p.Value(k))
				}
			}
			return out
		}
	}
	return p
}

// partProblem says what is wrong with a part, "" when nothing is.
func partProblem(p *doc.Object) string {
	kind, ok := p.Value("kind").(string)
	if !ok {
		return `needs a "kind": text, file or data`
	}
	if v, there := p.Get("metadata"); there && v != nil {
		if _, ok := v.(*doc.Object); !ok {
			return "has metadata that is no object"
		}
	}
	switch kind {
	case KindText:
		if _, ok := p.Value("text").(string); !ok {
			return `is a text part without "text"`
		}
	case KindData:
		if _, ok := p.Value("data").(*doc.Object); !ok {
			return `is a data part whose "data" is no object`
		}
	case KindFile:
		return fileProblem(p)
	default:
		return fmt.Sprintf("has the kind %q; it must be text, file or data", kind)
	}
	return ""
}

func fileProblem(p *doc.Object) string {
	f, ok := p.Value("file").(*doc.Object)
	if !ok {
		return `is a file part whose "file" is no object`
	}
	for _, key := range []string{"mimeType", "name"} {
		if v := f.Value(key); v != nil {
			if _, ok := v.(string); !ok {
				return fmt.Sprintf("is a file part whose %q is no text", key)
			}
		}
	}
	inline, uri := f.Value("bytes"), f.Value("uri")
	if (inline == nil) == (uri == nil) {
		return "is a file part that needs exactly one of bytes and uri"
	}
	if uri != nil {
		if s, ok := uri.(string); !ok || s == "" {
			return "is a file part whose uri is no text"
		}
		return ""
	}
	text, ok := inline.(string)
	if !ok {
		return "is a file part whose bytes are no text"
	}
	if !placeholder.MatchString(text) && !isBase64(text) {
		return "is a file part whose bytes are no base64 (standard alphabet, padded)"
	}
	return ""
}

// placeholder is what a run's seed may replace by a value.
var placeholder = regexp.MustCompile(`<[^<>]+>`)

// isBase64 reports whether a text is base64 in the standard alphabet and padded, line breaks apart.
func isBase64(text string) bool {
	_, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	return err == nil
}

// checkInline refuses parts whose inline files are larger than limit together; it names the one that is too much.
func checkInline(parts []*doc.Object, limit int64) error {
	total := int64(0)
	for i, p := range parts {
		total += int64(len(p.Obj("file").Str("bytes")))
		if total > limit {
			return fault.New(fault.Invalid, "parts[%d]: the files inside this message are larger than %s in base64, the most that is sent: "+
				"store the file and send its uri", i, bytesText(limit))
		}
	}
	return nil
}

// partsOf returns the parts of a message or artifact; what is no object is left out.
func partsOf(o *doc.Object) []*doc.Object {
	list := o.Arr("parts")
	out := make([]*doc.Object, 0, len(list))
	for _, v := range list {
		if p, ok := v.(*doc.Object); ok {
			out = append(out, p)
		}
	}
	return out
}

func arrayOf(parts []*doc.Object) []any {
	out := make([]any, len(parts))
	for i, p := range parts {
		out[i] = p
	}
	return out
}
