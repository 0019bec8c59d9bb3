// Package otlp sends traces of the program to the OpenTelemetry collector's own receiver. It is a module of its own, so that the program
// does not carry what the collector needs.
package otlp

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// receive starts the collector's receiver for both protocols and returns where it listens and what it got.
func receive(t *testing.T) (http, grpc string, got *consumertest.TracesSink) {
	t.Helper()
	http, grpc, got = freePort(t), freePort(t), &consumertest.TracesSink{}
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig()
	err := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{"http": map[string]any{"endpoint": http}, "grpc": map[string]any{"endpoint": grpc}}}).Unmarshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(factory.Type()), cfg, got)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(context.Background(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return http, grpc, got
}

func program(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "agent-env")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/agent-env")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// TestCollector sends the trace of the hello bundle to the receiver, by both protocols, and looks for the whole tree of the run.
func TestCollector(t *testing.T) {
	bin := program(t)
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			http, grpc, got := receive(t)
			endpoint := "http://" + http
			if protocol == "grpc" {
				endpoint = "http://" + grpc
			}
			file := filepath.Join(t.TempDir(), "trace.json")
			cmd := exec.CommandContext(t.Context(), bin, "--trace", file, "run", "hello")
			cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir(), "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			sent := tree(t, got.AllTraces())
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var written []ptrace.Traces
			for line := range bytes.Lines(text) {
				d, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
				if err != nil {
					t.Fatalf("the file is no OTLP JSON: %v", err)
				}
				written = append(written, d)
			}
			for name, paths := range map[string][]string{"the receiver": sent, "the file": tree(t, written)} {
				for _, want := range []string{"agent-env run", "run @local/agentenv-framework/hello/hello", "run @local/agentenv-framework/hello/hello/step box",
					"run @local/agentenv-framework/hello/hello/step box/sandbox create", "run @local/agentenv-framework/hello/hello/step load/put",
					"run @local/agentenv-framework/hello/hello/store write"} {
					if !slices.Contains(paths, want) {
						t.Errorf("%s has no span %q; it has %q", name, want, paths)
					}
				}
			}
		})
	}
}

// tree returns every span as the path of names from its root.
func tree(t *testing.T, all []ptrace.Traces) (paths []string) {
	t.Helper()
	spans := map[string]ptrace.Span{}
	for _, d := range all {
		for _, rs := range d.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					spans[s.SpanID().String()] = s
				}
			}
		}
	}
	for _, s := range spans {
		path := s.Name()
		for !s.ParentSpanID().IsEmpty() {
			parent, ok := spans[s.ParentSpanID().String()]
			if !ok {
				t.Errorf("the parent of %q was not exported", path)
				break
			}
			s = parent
			path = s.Name() + "/" + path
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
