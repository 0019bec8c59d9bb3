package telemetry

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"sync"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"agentenv/fault"
)

// file is an exporter's client that appends OTLP JSON to a file, one document a line, as the collector's file exporter does:
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding, with ids in hexadecimal.
type file struct {
	mu sync.Mutex
	f  *os.File
}

func newFile(path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), fault.Reason(err), "the trace file %s cannot be written", path)
	}
	return &file{f: f}, nil
}

func (*file) Start(context.Context) error { return nil }

func (c *file) Stop(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.f.Close(); err != nil {
		return fault.Wrap(fault.KindOf(err), fault.Reason(err), "the trace file %s", c.f.Name())
	}
	return nil
}

func (c *file) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	line, err := encode(spans)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.f.Write(line); err != nil {
		return fault.Wrap(fault.KindOf(err), fault.Reason(err), "the trace file %s", c.f.Name())
	}
	return nil
}

// encode returns one line of OTLP JSON.
func encode(spans []*tracepb.ResourceSpans) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return nil, err
	}
	var d struct {
		ResourceSpans []struct {
			Resource   any `json:"resource,omitempty"`
			SchemaURL  any `json:"schemaUrl,omitempty"`
			ScopeSpans []struct {
				Scope     any              `json:"scope,omitempty"`
				SchemaURL any              `json:"schemaUrl,omitempty"`
				Spans     []map[string]any `json:"spans"`
			} `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	for _, r := range d.ResourceSpans {
		for _, s := range r.ScopeSpans {
			for _, span := range s.Spans {
				inHex(span)
				links, _ := span["links"].([]any)
				for _, l := range links {
					if l, ok := l.(map[string]any); ok {
						inHex(l)
					}
				}
			}
		}
	}
	line, err := json.Marshal(d)
	return append(line, '\n'), err
}

// inHex writes the ids of a span or a link as OTLP has them, where JSON of protocol buffers has base64.
func inHex(m map[string]any) {
	for _, k := range []string{"traceId", "spanId", "parentSpanId"} {
		if text, ok := m[k].(string); ok {
			if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
				m[k] = hex.EncodeToString(raw)
			}
		}
	}
}
