package engine

import (
	"context"
	"errors"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"agentenv/fault"
)

// wrap gives an engine's error a kind and one line. A ctx that ended is what is reported.
func wrap(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fault.At(context.Cause(ctx), format, args...)
	}
	kind := fault.KindOf(err)
	if kind != fault.Internal {
		return fault.At(err, format, args...)
	}
	text := strings.ToLower(err.Error())
	switch {
	case errdefs.IsNotFound(err):
		kind = fault.NotFound
	case strings.Contains(text, "read-only") || strings.Contains(text, "no space left"):
		kind = fault.Unavailable
	case strings.Contains(text, "is not running") || strings.Contains(text, "is paused") || strings.Contains(text, "is restarting"):
		kind = fault.Unavailable
	case errdefs.IsConflict(err):
		kind = fault.Conflict
	case errdefs.IsInvalidArgument(err):
		kind = fault.Invalid
	case errdefs.IsPermissionDenied(err), errdefs.IsUnauthorized(err):
		kind = fault.Denied
	default: // whatever else: the engine, its runtime or the way to it fails
		kind = fault.Unavailable
	}
	if client.IsErrConnectionFailed(err) {
		kind = fault.Unavailable
	}
	return fault.Wrap(kind, oneLine(err), format, args...)
}

func oneLine(err error) error {
	t := strings.Join(strings.Fields(err.Error()), " ")
	t = strings.TrimPrefix(t, "Error response from daemon: ")
	const most = 600
	if len(t) > most {
		t = t[:most] + "…"
	}
	return errors.New(strings.ToValidUTF8(t, "\uFFFD"))
}
