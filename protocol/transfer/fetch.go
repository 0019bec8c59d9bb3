package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
)

// Fetch reads an object by its grant and hands its bytes on as they come, for each attempt anew: take reads the body to its end, which comes
// without an error only when size and sha256 are as told. tag is the answer's ETag, "" when it has none. An error of take that is not the
// body's ends the transfer and is returned as it is; other errors are *Error, or the context's.
func (c *Client) Fetch(ctx context.Context, o ReadObject, take func(tag string, body io.Reader) error) (Uploaded, error) {
	var got Uploaded
	var own error
	err := c.repeat(ctx, o.Read.ExpiresAt, func() *Error {
		return c.send(ctx, request{method: "GET", url: o.Read.URL, headers: o.Read.Headers, defaults: map[string]string{"Accept-Encoding": "identity"},
			take: func(h http.Header, r io.Reader) *Error {
				b := &checked{r: r, o: o, sum: sha256.New()}
				err := take(h.Get("ETag"), b)
				switch {
				case b.err != nil:
					return b.err
				case err != nil:
					own = err
					return invalid("The object could not be kept.")
				}
				if !b.ended {
					return mismatch("The object was not read to its end.")
				}
				got = Uploaded{Size: b.n, SHA256: hex.EncodeToString(b.sum.Sum(nil))}
				return nil
			}})
	})
	if own != nil {
		return Uploaded{}, own
	}
	return got, err
}

// checked is a body that ends only as its descriptor says.
type checked struct {
	r     io.Reader
	o     ReadObject
	sum   hash.Hash
	n     int64
	ended bool
	err   *Error
}

func (b *checked) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.r.Read(p)
	b.n += int64(n)
	b.sum.Write(p[:n])
	switch {
	case b.n > b.o.MaxBytes:
		b.err = tooLarge("The object is larger than its grant allows.")
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		b.err = unavailable(err)
	case b.o.Size >= 0 && b.n != b.o.Size:
		b.err = mismatch("The object has another size than was told.")
	case b.o.SHA256 != "" && hex.EncodeToString(b.sum.Sum(nil)) != b.o.SHA256:
		b.err = mismatch("The object has another sha256 than was told.")
	default:
		b.ended = true
		return n, io.EOF
	}
	return 0, b.err
}
