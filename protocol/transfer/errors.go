package transfer

import "errors"

// Error is why a transfer failed. Its text is a fixed sentence: never a URL, a header or a body. Two errors of one Code and Retryable are equal
// in what they tell.
type Error struct {
	Code      string
	Status    int // the HTTP status it is answered with
	Retryable bool
	text      string
	cause     error
}

func (e *Error) Error() string { return e.text }

// Unwrap returns what lies behind the error, for logs; it may name the host of a grant.
func (e *Error) Unwrap() error { return e.cause }

// Answered returns the HTTP status by which the other side refused the transfer, 0 when it gave no answer.
func (e *Error) Answered() int {
	var a *answeredError
	if errors.As(e.cause, &a) {
		return a.status
	}
	return 0
}

// JSON returns the wire form: {"error": {"code", "message", "retryable"}}.
func (e *Error) JSON() map[string]any {
	return map[string]any{"error": map[string]any{"code": e.Code, "message": e.text, "retryable": e.Retryable}}
}

func invalid(text string) *Error { return &Error{Code: "invalid_transfer", Status: 400, text: text} }

func expired() *Error {
	return &Error{Code: "grant_expired", Status: 410, text: "The grant for this object has expired."}
}

func tooLarge(text string) *Error {
	return &Error{Code: "transfer_too_large", Status: 413, text: text}
}

func mismatch(text string) *Error {
	return &Error{Code: "integrity_mismatch", Status: 422, text: text}
}

func rejected(cause error) *Error {
	return &Error{Code: "transfer_rejected", Status: 502, text: "The object store refused the transfer.", cause: cause}
}

func unavailable(cause error) *Error {
	return &Error{Code: "transfer_unavailable", Status: 502, Retryable: true, text: "The object store could not be reached, or could not serve the transfer now.", cause: cause}
}

func stalled(cause error) *Error {
	return &Error{Code: "transfer_timeout", Status: 504, Retryable: true, text: "The transfer made no progress for too long.", cause: cause}
}
