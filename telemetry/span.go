// Package telemetry is how the rooms trace what they do, with OpenTelemetry: run, step, and below a step its commands, transfers,
// image builds and writes to stores. The tracer rides in the context, so nothing is global; without one a span costs nothing.
package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"agentenv/fault"
)

// scope is the name of our instrumentation in exported spans.
const scope = "agentenv"

// Span is one piece of work in a trace. A nil Span is one that nobody records; all its methods do nothing. Safe for concurrent use.
type Span struct{ span trace.Span }

// Recorded reports whether somebody records the spans begun in ctx.
func Recorded(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Start begins a span below the one of ctx. The returned context is for the work in it. Whoever starts a span ends it.
func Start(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, *Span) {
	return start(ctx, name, trace.WithAttributes(attrs...))
}

// StartTrace begins the first span of a trace of its own, linked to the span of ctx: of many runs of one command each is a trace.
func StartTrace(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, *Span) {
	return start(ctx, name, trace.WithAttributes(attrs...), trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)))
}

func start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, *Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, nil
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name, options...)
	return ctx, &Span{span}
}

// Set adds attributes.
func (s *Span) Set(attrs ...attribute.KeyValue) {
	if s != nil {
		s.span.SetAttributes(attrs...)
	}
}

// End ends the span; an error is its status, with its kind and class. A second call does nothing.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
		s.span.SetAttributes(attribute.String("error.type", fault.ClassOf(err)), attribute.String("agentenv.fault.kind", string(fault.KindOf(err))))
	}
	s.span.End()
}
