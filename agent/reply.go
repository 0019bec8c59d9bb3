package agent

import (
	"strings"

	"agentenv/store/doc"
)

// fill reads what the parts say into the reply: texts, and of data parts what the agent reports about the turn, where a later part wins.
func (r *Reply) fill(parts []*doc.Object) {
	r.Parts = parts
	var texts []string
	for _, p := range parts {
		if s, ok := p.Value("text").(string); ok && p.Str("kind") == KindText {
			texts = append(texts, s)
		}
		if p.Str("kind") == KindData {
			r.report(p.Obj("data"))
		}
	}
	if len(texts) > 0 {
		r.LastText, r.Text = texts[len(texts)-1], strings.Join(texts, "\n")
	}
}

func (r *Reply) report(d *doc.Object) {
	usage := d.Obj("usage")
	if usage != nil {
		r.Usage = usage
	}
	for _, o := range []*doc.Object{usage, d} {
		if n, ok := o.Int("tool_call_count"); ok && n >= 0 {
			r.ToolCalls = &n
		}
	}
	for key, to := range map[string]*string{"error_type": &r.ErrorType, "error_code": &r.ErrorCode, "error_class": &r.ErrorClass,
		"error_message": &r.ErrorMessage} {
		if s, ok := d.Value(key).(string); ok {
			*to = s
		}
	}
	if v := d.Value("structured_output"); v != nil {
		r.Structured = v
	}
}

// progress gathers what an agent says before a turn ends, each message once, up to a size.
type progress struct {
	limit    int64
	size     int64
	seen     map[string]bool
	parts    []*doc.Object
	metadata *doc.Object
}

// room counts what is about to be kept, and reports whether it still fits.
func (p *progress) room(values ...any) bool {
	for _, v := range values {
		p.size += weight(v)
	}
	return p.size <= p.limit
}

// add takes a message of the agent; one without an id, one seen before and one beyond the size are passed over.
func (p *progress) add(m *doc.Object) {
	id := m.Str("messageId")
	if m.Str("role") != "agent" || id == "" || p.seen[id] || !p.room(id, m.Arr("parts")) {
		return
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[id] = true
	p.parts = append(p.parts, partsOf(m)...)
}

// merge takes metadata of the task; a later value of a key wins, and what is beyond the size is passed over.
func (p *progress) merge(metadata *doc.Object) {
	if metadata.Len() == 0 || !p.room(metadata) {
		return
	}
	if p.metadata == nil {
		p.metadata = doc.Of()
	}
	for _, k := range metadata.Keys() {
		p.metadata.Set(k, metadata.Value(k))
	}
}

// weight is about how many bytes a value holds in memory.
func weight(v any) int64 {
	const each = 32
	switch v := v.(type) {
	case string:
		return each + int64(len(v))
	case doc.Number:
		return each + int64(len(v))
	case []any:
		n := int64(each)
		for _, el := range v {
			n += weight(el)
		}
		return n
	case *doc.Object:
		n := int64(each)
		for _, k := range v.Keys() {
			n += each + int64(len(k)) + weight(v.Value(k))
		}
		return n
	}
	return each
}
