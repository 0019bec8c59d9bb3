package telemetry

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
)

// Hand puts the trace that ctx belongs to into the headers of a request, so that whoever serves it can go on with it; without a trace they stay as
// they are. Source: W3C Trace Context.
func Hand(ctx context.Context, to http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(to))
}
