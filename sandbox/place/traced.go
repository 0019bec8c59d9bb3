package place

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"agentenv/telemetry"
)

const attrPlace = "agentenv.place"

// Traced returns p with a span for each command that it runs and each transfer, when ctx has a trace, else p itself. A span of a
// command names the program and never its arguments.
func Traced(ctx context.Context, p Place) Place {
	if !telemetry.Recorded(ctx) {
		return p
	}
	return &traced{p}
}

type traced struct{ Place }

func (t *traced) Exec(ctx context.Context, c Cmd) (r *Result, err error) {
	program := "sh"
	if len(c.Argv) > 0 {
		program = c.Argv[0]
	}
	ctx, span := telemetry.Start(ctx, "exec", attribute.String(attrPlace, t.String()), attribute.String("process.executable.name", program))
	defer func() {
		if r != nil {
			span.Set(attribute.Int("process.exit.code", r.Code), attribute.Int("agentenv.stdout.bytes", len(r.Stdout)), attribute.Int("agentenv.stderr.bytes", len(r.Stderr)))
		}
		span.End(err)
	}()
	return t.Place.Exec(ctx, c)
}

func (t *traced) Get(ctx context.Context, req GetRequest) (Tree, error) {
	ctx, span := telemetry.Start(ctx, "get", attribute.String(attrPlace, t.String()), attribute.StringSlice("agentenv.paths", req.Roots))
	tree, err := t.Place.Get(ctx, req)
	if err != nil {
		span.End(err)
		return nil, err
	}
	return &tracedTree{Tree: tree, span: span}, nil
}

func (t *traced) Walk(ctx context.Context, root string, hash bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		ctx, span := telemetry.Start(ctx, "list", attribute.String(attrPlace, t.String()), attribute.String("agentenv.path", root))
		n := 0
		var last error
		defer func() {
			span.Set(attribute.Int("agentenv.files", n))
			span.End(last)
		}()
		for e, err := range t.Place.Walk(ctx, root, hash) {
			n, last = n+1, err
			if !yield(e, err) {
				return
			}
		}
	}
}

// tracedTree is a transfer out of a place, as long as it is read.
type tracedTree struct {
	Tree
	span  *telemetry.Span
	files int
	bytes int64
	bad   error
	once  sync.Once
}

func (t *tracedTree) Next() (Entry, error) {
	e, err := t.Tree.Next()
	switch {
	case err == nil:
		t.files++
	case !errors.Is(err, io.EOF):
		t.bad = err
	}
	return e, err
}

func (t *tracedTree) Read(b []byte) (int, error) {
	n, err := t.Tree.Read(b)
	t.bytes += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		t.bad = err
	}
	return n, err
}

func (t *tracedTree) Close() error {
	err := t.Tree.Close()
	t.once.Do(func() {
		t.span.Set(attribute.Int("agentenv.files", t.files), attribute.Int64("agentenv.bytes", t.bytes))
		t.span.End(t.bad)
	})
	return err
}
