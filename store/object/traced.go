package object

import (
	"context"
	"errors"
	"io"

	"go.opentelemetry.io/otel/attribute"

	"agentenv/telemetry"
)

// Traced returns s with a span for each write.
func Traced(s Store) Store { return traced{s} }

type traced struct{ Store }

func (t traced) Put(ctx context.Context, it Item, overwrite bool) (w Written, err error) {
	ctx, span := telemetry.Start(ctx, "object write")
	defer func() {
		span.Set(attribute.Int("agentenv.files", 1), attribute.Int64("agentenv.bytes", w.Size))
		span.End(err)
	}()
	return t.Store.Put(ctx, it, overwrite)
}

func (t traced) PutAll(ctx context.Context, next func() (Item, error)) (all []Written, err error) {
	ctx, span := telemetry.Start(ctx, "object write")
	defer func() {
		var n int64
		for _, w := range all {
			n += w.Size
		}
		span.Set(attribute.Int("agentenv.files", len(all)), attribute.Int64("agentenv.bytes", n))
		span.End(err)
	}()
	return t.Store.PutAll(ctx, next)
}

func (t traced) Open(ctx context.Context, url string) (io.ReadCloser, error) {
	ctx, span := telemetry.Start(ctx, "object read")
	r, err := t.Store.Open(ctx, url)
	if err != nil {
		span.End(err)
		return nil, err
	}
	if span == nil {
		return r, nil
	}
	return &tracedReader{ReadCloser: r, span: span}, nil
}

type tracedReader struct {
	io.ReadCloser
	span *telemetry.Span
	n    int64
	bad  error
}

func (r *tracedReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	r.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		r.bad = err
	}
	return n, err
}

func (r *tracedReader) Close() error {
	err := r.ReadCloser.Close()
	r.span.Set(attribute.Int64("agentenv.bytes", r.n))
	r.span.End(r.bad)
	return err
}
