package a2a

import (
	"bytes"
	"encoding/json"
	"io"

	wire "github.com/a2aproject/a2a-go/a2a"

	"agentenv/fault"
)

// decode reads one JSON value; numbers keep their digits.
func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fault.New(fault.Invalid, "there is more than one JSON value")
	}
	return v, nil
}

// copyObject returns a deep copy of a JSON object, or an error for one that is no JSON.
func copyObject(o map[string]any) (map[string]any, error) {
	if len(o) == 0 {
		return o, nil
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	v, err := decode(text)
	c, _ := v.(map[string]any)
	return c, err
}

// copyParts returns the parts as values that share nothing with the originals, or an Invalid error for what is no JSON.
func copyParts(parts []Part) ([]Part, error) {
	out := make([]Part, len(parts))
	for i, p := range parts {
		if p == nil {
			return nil, fault.New(fault.Invalid, "part %d is nil", i)
		}
		meta, err := copyObject(p.Meta())
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "the metadata of part %d is no JSON", i)
		}
		switch p := p.(type) {
		case TextPart:
			out[i] = TextPart{Text: p.Text, Metadata: meta}
		case FilePart:
			if p.File == nil {
				return nil, fault.New(fault.Invalid, "part %d is a file without bytes and without a URI", i)
			}
			out[i] = FilePart{File: p.File, Metadata: meta}
		case DataPart:
			data, err := copyObject(p.Data)
			if err != nil {
				return nil, fault.Wrap(fault.Invalid, err, "the data of part %d is no JSON", i)
			}
			if data == nil {
				data = map[string]any{}
			}
			out[i] = DataPart{Data: data, Metadata: meta}
		default:
			return nil, fault.New(fault.Invalid, "part %d is a %T, which is no value of a part", i, p)
		}
	}
	return out, nil
}

// reader reads fields of a JSON object and keeps the first thing that is wrong.
type reader struct {
	at     string
	object map[string]any
	err    *error
}

func (r reader) fail(format string, args ...any) {
	if *r.err == nil {
		*r.err = fault.New(fault.Invalid, format, args...)
	}
}

func field[T any](r reader, name, kind string, required bool) (v T) {
	raw := r.object[name]
	if raw == nil {
		if required {
			r.fail("%s.%s is missing", r.at, name)
		}
		return v
	}
	v, ok := raw.(T)
	if !ok {
		r.fail("%s.%s must be %s", r.at, name, kind)
	}
	return v
}

func (r reader) text(name string, required bool) string {
	s := field[string](r, name, "a string", required)
	if required && s == "" {
		r.fail("%s.%s must not be empty", r.at, name)
	}
	return s
}

// maxID is how many bytes an id may have: ids are kept longer than what they name.
const maxID = 1024

func (r reader) id(name string, required bool) string {
	s := r.text(name, required)
	if len(s) > maxID {
		r.fail("%s.%s is longer than %d bytes", r.at, name, maxID)
	}
	return s
}

func (r reader) strings(name string) (out []string) {
	for _, v := range field[[]any](r, name, "a list", false) {
		s, ok := v.(string)
		if !ok {
			r.fail("%s.%s must be a list of strings", r.at, name)
		}
		out = append(out, s)
	}
	return out
}

// parseMessage reads a message of a request.
func parseMessage(object map[string]any) (m *wire.Message, err error) {
	r := reader{"message", object, &err}
	m = &wire.Message{ID: r.id("messageId", true), ContextID: r.id("contextId", false), TaskID: wire.TaskID(r.id("taskId", false)),
		Role: wire.MessageRole(r.text("role", true)), Extensions: r.strings("extensions"), Metadata: field[map[string]any](r, "metadata", "an object", false)}
	for _, id := range r.strings("referenceTaskIds") {
		m.ReferenceTasks = append(m.ReferenceTasks, wire.TaskID(id))
	}
	if kind := r.text("kind", false); kind != "" && kind != "message" {
		r.fail("message.kind must be \"message\"")
	}
	if m.Role != wire.MessageRoleUser && m.Role != wire.MessageRoleAgent {
		r.fail("message.role must be \"user\" or \"agent\"")
	}
	parts := field[[]any](r, "parts", "a list", true)
	if len(parts) == 0 {
		r.fail("message.parts must not be empty")
	}
	for i, v := range parts {
		p, perr := parsePart(v)
		if perr != nil {
			r.fail("message.parts[%d]%v", i, perr)
		}
		m.Parts = append(m.Parts, p)
	}
	return m, err
}

func parsePart(v any) (p Part, err error) {
	object, ok := v.(map[string]any)
	if !ok {
		return nil, fault.New(fault.Invalid, " must be an object")
	}
	r := reader{"", object, &err}
	meta := field[map[string]any](r, "metadata", "an object", false)
	switch kind := r.text("kind", true); kind {
	case "text":
		return TextPart{Text: field[string](r, "text", "a string", true), Metadata: meta}, err
	case "data":
		return DataPart{Data: field[map[string]any](r, "data", "an object", true), Metadata: meta}, err
	case "file":
		f := reader{".file", field[map[string]any](r, "file", "an object", true), &err}
		of := wire.FileMeta{MimeType: f.text("mimeType", false), Name: f.text("name", false)}
		if (f.object["bytes"] == nil) == (f.object["uri"] == nil) {
			f.fail(".file must have exactly one of bytes and uri")
		}
		if f.object["bytes"] != nil {
			return FilePart{File: FileBytes{FileMeta: of, Bytes: f.text("bytes", false)}, Metadata: meta}, err
		}
		return FilePart{File: FileURI{FileMeta: of, URI: f.text("uri", true)}, Metadata: meta}, err
	default:
		r.fail(".kind must be \"text\", \"file\" or \"data\"")
		return nil, err
	}
}
