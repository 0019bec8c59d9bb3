// Package fault gives every error of agent-env a kind, so that callers decide by what went wrong and never by the text.
package fault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Kind says what went wrong, independent of where.
type Kind string

// The kinds. Internal is also the kind of every error that carries none: a defect, or something nobody classified.
const (
	Internal    Kind = "internal"
	NotFound    Kind = "not found"
	Exists      Kind = "exists"
	Conflict    Kind = "conflict"
	Invalid     Kind = "invalid"
	Denied      Kind = "denied"
	Unavailable Kind = "unavailable"
	Timeout     Kind = "timeout"
	Canceled    Kind = "canceled"
	Unsupported Kind = "unsupported"
)

// Error is an error with a kind. Its text is one line for people: the thing, the place, the cause, and what to do about it.
// It is immutable and safe for concurrent use.
type Error struct {
	Kind  Kind
	Class string // the error class name that records carry ("RuntimeError", "ValueError", …); empty: derived from Kind
	Msg   string
	Err   error // the cause, or nil; its text is part of Error() only when Msg does not already end in it
}

// Error returns the message, followed by ": " and the cause when there is one.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Msg
	}
	if e.Msg == "" {
		return e.Err.Error()
	}
	return e.Msg + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// WithClass returns a copy of e whose records carry the given class name.
func (e *Error) WithClass(class string) *Error {
	c := *e
	c.Class = class
	return &c
}

// New returns an error of the kind with a formatted message.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Msg: fmt.Sprintf(format, args...)}
}

// Wrap returns an error of the kind whose message precedes the cause's text. A nil cause gives an error without a cause.
func Wrap(kind Kind, err error, format string, args ...any) *Error {
	return &Error{Kind: kind, Msg: fmt.Sprintf(format, args...), Err: err}
}

// At returns err with context in front of its text, keeping kind and class. It returns nil for nil.
func At(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: KindOf(err), Class: ClassOf(err), Msg: fmt.Sprintf(format, args...), Err: err}
}

// KindOf returns the kind of the outermost Error in err's chain; for others it knows the standard library's context,
// not-exist, exist and permission errors, and gives Internal otherwise. KindOf(nil) is "".
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, fs.ErrNotExist):
		return NotFound
	case errors.Is(err, fs.ErrExist):
		return Exists
	case errors.Is(err, fs.ErrPermission):
		return Denied
	}
	return Internal
}

// Is reports whether err's kind is one of kinds.
func Is(err error, kinds ...Kind) bool {
	k := KindOf(err)
	for _, want := range kinds {
		if err != nil && k == want {
			return true
		}
	}
	return false
}

// ClassOf returns the class name under which err is recorded, as readers of stored runs match on it: the Error's own
// Class, else ValueError for Invalid, TimeoutError for Timeout, CancelledError for Canceled, RuntimeError otherwise.
func ClassOf(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Class != "" {
		return e.Class
	}
	switch KindOf(err) {
	case Invalid:
		return "ValueError"
	case Timeout:
		return "TimeoutError"
	case Canceled:
		return "CancelledError"
	}
	return "RuntimeError"
}
