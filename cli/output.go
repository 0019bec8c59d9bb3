package cli

import (
	"errors"
	"io"
	"sync"
	"syscall"

	"agentenv/fault"
)

// output is standard output that remembers the first write that failed, so that lost output never ends with exit code 0.
// Safe for concurrent use.
type output struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		o.mu.Lock()
		if o.err == nil {
			o.err = err
		}
		o.mu.Unlock()
	}
	return n, err
}

// failed returns the first failure; a reader that has read enough is none.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return fault.Wrap(fault.Unavailable, o.err, "standard output could not be written in full")
}
