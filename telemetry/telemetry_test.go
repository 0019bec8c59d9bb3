package telemetry_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"agentenv/fault"
	"agentenv/telemetry"
)

func none(string) string { return "" }

// span is what the tests read of OTLP JSON.
type span struct {
	TraceID string `json:"traceId"`
	SpanID  string `json:"spanId"`
	Parent  string `json:"parentSpanId"`
	Name    string `json:"name"`
	Status  struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
	Links []struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
	} `json:"links"`
	Attributes []struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	} `json:"attributes"`
}

func read(t *testing.T, file string) map[string]span {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]span{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var d struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []span `json:"spans"`
				} `json:"scopeSpans"`
			} `json:"resourceSpans"`
		}
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		for _, r := range d.ResourceSpans {
			for _, s := range r.ScopeSpans {
				for _, one := range s.Spans {
					all[one.Name] = one
				}
			}
		}
	}
	return all
}

func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.json")
	ctx, end, err := telemetry.Open(t.Context(), telemetry.Options{Env: none, File: file, Command: "agent-env run", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	run, one := telemetry.StartTrace(ctx, "run t", attribute.String("agentenv.task.id", "t"))
	step, two := telemetry.Start(run, "step a")
	if !telemetry.Recorded(step) {
		t.Error("the span of the step is not recorded")
	}
	two.Set(attribute.Int("n", 3))
	two.End(fault.New(fault.NotFound, "no box"))
	two.End(nil)
	one.End(nil)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	spans := read(t, file)
	root, run1, step1 := spans["agent-env run"], spans["run t"], spans["step a"]
	if !regexp.MustCompile("^[0-9a-f]{32}$").MatchString(run1.TraceID) || !regexp.MustCompile("^[0-9a-f]{16}$").MatchString(run1.SpanID) {
		t.Errorf("ids are no hexadecimal: %+v", run1)
	}
	if run1.Parent != "" || run1.TraceID == root.TraceID || len(run1.Links) != 1 || run1.Links[0].SpanID != root.SpanID || run1.Links[0].TraceID != root.TraceID {
		t.Errorf("the run is no trace of its own, linked to the command: %+v, %+v", run1, root)
	}
	if step1.Parent != run1.SpanID || step1.TraceID != run1.TraceID || step1.Status.Code != 2 || step1.Status.Message != "no box" {
		t.Errorf("the step is %+v", step1)
	}
	attrs := map[string]any{}
	for _, a := range step1.Attributes {
		for _, v := range a.Value {
			attrs[a.Key] = v
		}
	}
	if attrs["n"] != "3" || attrs["agentenv.fault.kind"] != string(fault.NotFound) {
		t.Errorf("the attributes of the step are %v", attrs)
	}
	if fi, _ := os.Stat(file); fi.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v", fi.Mode())
	}
}

func TestNothingIsTracedUnasked(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing asked": {}, "switched off": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1", "OTEL_SDK_DISABLED": "true"},
		"no exporter": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1", "OTEL_TRACES_EXPORTER": "none"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, end, err := telemetry.Open(t.Context(), telemetry.Options{Env: func(k string) string { return env[k] }})
			if err != nil || telemetry.Recorded(ctx) || ctx != t.Context() {
				t.Fatalf("traced: %v", err)
			}
			same, s := telemetry.Start(ctx, "x")
			s.Set(attribute.Bool("b", true))
			s.End(errors.New("boom"))
			if same != ctx || end() != nil {
				t.Error("a span that nobody records changed something")
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for name, o := range map[string]telemetry.Options{
		"no folder": {Env: none, File: filepath.Join(t.TempDir(), "none", "trace.json")},
		"other protocols": {Env: func(k string) string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}[k]
		}},
	} {
		if _, _, err := telemetry.Open(t.Context(), o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for endpoint, why := range map[string]string{"localhost:4318": "has no scheme", "collector": "has no scheme", "user:word@host:1": "has no scheme", "http://": "names no host", "http:///v1": "names no host"} {
		for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
			for _, protocol := range []string{"", "grpc"} {
				env := map[string]string{name: endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
				_, _, err := telemetry.Open(t.Context(), telemetry.Options{Env: func(k string) string { return env[k] }})
				if err == nil || !strings.Contains(err.Error(), name+" "+why) || strings.Contains(err.Error(), "word") || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s=%s: %v", name, endpoint, err)
				}
			}
		}
	}
}

// TestEndpoint sends spans to a receiver over HTTP, and to one that does not answer.
func TestEndpoint(t *testing.T) {
	var mu sync.Mutex
	var names []string
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &req); err != nil || r.URL.Path != "/v1/traces" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					names = append(names, s.Name)
				}
			}
		}
	}))
	defer receiver.Close()
	export := func(endpoint string) error {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
		ctx, end, err := telemetry.Open(context.Background(), telemetry.Options{Env: os.Getenv, Command: "agent-env run"})
		if err != nil {
			t.Fatal(err)
		}
		_, s := telemetry.Start(ctx, "step a")
		s.End(nil)
		return end()
	}
	if err := export(receiver.URL); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(names, ","); text != "step a,agent-env run" {
		t.Errorf("received %s", text)
	}
	receiver.Close()
	began := time.Now()
	if err := export(receiver.URL); !fault.Is(err, fault.Unavailable) || time.Since(began) > 5*time.Second {
		t.Errorf("a dead endpoint: %v after %v", err, time.Since(began))
	}
}
