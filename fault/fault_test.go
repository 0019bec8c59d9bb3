package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"agentenv/fault"
)

func TestKindAndClass(t *testing.T) {
	inner := fault.New(fault.Timeout, "slow").WithClass("SpecialError")
	for _, c := range []struct {
		err   error
		kind  fault.Kind
		class string
	}{
		{errors.New("x"), fault.Internal, "RuntimeError"},
		{fault.New(fault.Invalid, "x"), fault.Invalid, "ValueError"},
		{fault.New(fault.NotFound, "x"), fault.NotFound, "RuntimeError"},
		{fault.New(fault.Timeout, "x"), fault.Timeout, "TimeoutError"},
		{fault.At(inner, "step %q", "a"), fault.Timeout, "SpecialError"},
		{fmt.Errorf("around: %w", inner), fault.Timeout, "SpecialError"},
		{context.DeadlineExceeded, fault.Timeout, "TimeoutError"},
		{context.Canceled, fault.Canceled, "CancelledError"},
		{fmt.Errorf("x: %w", fs.ErrNotExist), fault.NotFound, "RuntimeError"},
		{&fs.PathError{Op: "open", Path: "/x", Err: fs.ErrPermission}, fault.Denied, "RuntimeError"},
	} {
		if k, cl := fault.KindOf(c.err), fault.ClassOf(c.err); k != c.kind || cl != c.class {
			t.Errorf("%v: %s, %s; want %s, %s", c.err, k, cl, c.kind, c.class)
		}
	}
	if fault.At(nil, "x") != nil || fault.KindOf(nil) != "" || fault.Is(nil, fault.Internal) {
		t.Error("no error is no error")
	}
	if got := fault.At(inner, "step %q", "a").Error(); got != `step "a": slow` {
		t.Error(got)
	}
}

func TestReason(t *testing.T) {
	_, err := os.Open("/nowhere/at/all")
	if got := fault.Reason(fmt.Errorf("x: %w", err)).Error(); got != "no such file or directory" {
		t.Error(got)
	}
	if got := fault.Reason(errors.New("plain")).Error(); got != "plain" {
		t.Error(got)
	}
}
