package agent

import (
	"context"
	"errors"
	"io"
)

// Open runs an operation like Call, once, and returns the body of its answer as it comes, of any size: for answers that are too large to hold.
// The caller closes it. Its errors are those of Call, also while it is read; the call's timeout holds until its end.
func (c *Client) Open(ctx context.Context, e Endpoint, call Call) (io.ReadCloser, error) {
	r, err := e.route(call)
	if err != nil {
		return nil, err
	}
	try, stop := context.WithTimeout(ctx, r.Timeout)
	resp, err := c.open(try, e, r.method, r.target, "application/json", r.body)
	if err != nil {
		stop()
		return nil, e.unanswered(ctx, try, r, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer stop()
		defer resp.Body.Close()
		a, err := c.read(resp)
		if err != nil {
			return nil, e.unanswered(ctx, try, r, err)
		}
		return nil, e.callError(r, a)
	}
	return &openAnswer{resp.Body, stop, func(err error) error { return e.unanswered(ctx, try, r, err) }}, nil
}

type openAnswer struct {
	body io.ReadCloser
	stop context.CancelFunc
	wrap func(error) error
}

func (o *openAnswer) Read(p []byte) (int, error) {
	n, err := o.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = o.wrap(err)
	}
	return n, err
}

func (o *openAnswer) Close() error {
	o.stop()
	return o.body.Close()
}
