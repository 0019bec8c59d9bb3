package telemetry

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"agentenv/fault"
)

// lastWords is how long the end of a program waits for spans that are not exported yet.
const lastWords = 3 * time.Second

// Options say where spans go.
type Options struct {
	// Env is the environment: the exporter to a collector is configured by the standard variables
	// (https://opentelemetry.io/docs/specs/otel/protocol/exporter/), and there is none unless OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or
	// OTEL_EXPORTER_OTLP_ENDPOINT names an endpoint, or when OTEL_SDK_DISABLED is true or OTEL_TRACES_EXPORTER none.
	Env     func(string) string
	File    string // gets the spans as OTLP JSON, a document a line, anew; "" = none
	Command string // what the program was asked to do: the name of the first span
	Version string // of the program
}

// Open returns ctx with the first span of a program in it, and what ends that span and exports what is left, within some seconds.
// Without an endpoint and a file it returns ctx itself. An exporter that cannot be made, or a file that cannot be written, is an error;
// a collector that does not answer later is none: spans are dropped then, and end returns why.
func Open(ctx context.Context, o Options) (traced context.Context, end func() error, err error) {
	var with []trace.TracerProviderOption
	remote, err := exporter(ctx, o.Env)
	if err != nil {
		return nil, nil, err
	}
	if remote != nil {
		with = append(with, trace.WithBatcher(remote))
	}
	if o.File != "" {
		f, err := newFile(o.File)
		if err != nil {
			return nil, nil, err
		}
		local, err := otlptrace.New(ctx, f)
		if err != nil {
			return nil, nil, err
		}
		with = append(with, trace.WithBatcher(local))
	}
	if len(with) == 0 {
		return ctx, func() error { return nil }, nil
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "agent-env"), attribute.String("service.version", o.Version)),
		resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, nil, fault.Wrap(fault.Invalid, err, "OTEL_RESOURCE_ATTRIBUTES")
	}
	// The exporters tell of what they lose only there.
	var lost atomic.Pointer[error]
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { lost.CompareAndSwap(nil, &err) }))
	p := trace.NewTracerProvider(append(with, trace.WithResource(about))...)
	traced, span := p.Tracer(scope).Start(ctx, o.Command)
	return traced, func() error {
		span.End()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		err := p.Shutdown(ctx)
		if first := lost.Load(); first != nil {
			err = *first
		}
		if err != nil {
			return fault.Wrap(fault.Unavailable, err, "some spans could not be exported")
		}
		return nil
	}, nil
}

// checkEndpoint refuses an endpoint that is no URL of a host: the exporters take it for one without a name, and say so with every span.
func checkEndpoint(env func(string) string) error {
	name := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	if env(name) == "" {
		name = "OTEL_EXPORTER_OTLP_ENDPOINT"
	}
	u, err := url.Parse(env(name))
	switch {
	case err != nil || u.Host == "" && !strings.Contains(env(name), "://"):
		return fault.New(fault.Invalid, "%s has no scheme; it is a URL such as http://localhost:4318", name)
	case u.Host == "" && u.Scheme != "unix":
		return fault.New(fault.Invalid, "%s names no host; it is a URL such as http://localhost:4318", name)
	}
	return nil
}

// exporter returns the one that the environment asks for, nil when it asks for none.
func exporter(ctx context.Context, env func(string) string) (trace.SpanExporter, error) {
	asked := env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	if !asked || env("OTEL_SDK_DISABLED") == "true" || env("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	protocol := env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = env("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if err := checkEndpoint(env); err != nil {
		return nil, err
	}
	var client otlptrace.Client
	switch protocol {
	case "", "http/protobuf":
		client = otlptracehttp.NewClient()
	case "grpc":
		client = otlptracegrpc.NewClient()
	default:
		return nil, fault.New(fault.Invalid, "OTEL_EXPORTER_OTLP_PROTOCOL=%s is not supported; take http/protobuf or grpc", protocol)
	}
	e, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the trace exporter cannot be made")
	}
	return e, nil
}
