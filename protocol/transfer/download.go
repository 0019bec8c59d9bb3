package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// Download reads an object by its grant into a file, which it replaces whole once size and sha256 are as told; until then, and when it
// fails, the file stays as it was. Errors are *Error, or the context's.
func (c *Client) Download(ctx context.Context, o ReadObject, target string) (Uploaded, error) {
	part := filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+"."+randomHex()+".part")
	defer os.Remove(part)
	var got Uploaded
	err := c.repeat(ctx, o.Read.ExpiresAt, func() *Error {
		return c.send(ctx, request{method: "GET", url: o.Read.URL, headers: o.Read.Headers, defaults: map[string]string{"Accept-Encoding": "identity"},
			take: func(_ http.Header, r io.Reader) (terr *Error) {
				got, terr = take(r, o, part)
				return terr
			}})
	})
	if err != nil {
		return Uploaded{}, err
	}
	if err := os.Rename(part, target); err != nil {
		return Uploaded{}, invalid("The object could not be put in its place.")
	}
	return got, nil
}

// take writes an answer to a file and checks it.
func take(r io.Reader, o ReadObject, name string) (Uploaded, *Error) {
	f, err := os.Create(name)
	if err != nil {
		return Uploaded{}, invalid("There is no place to write the object.")
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(disk{f}, sum), io.LimitReader(r, o.MaxBytes+1))
	u := Uploaded{Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}
	var full *diskError
	switch {
	case errors.As(err, &full):
		return u, invalid("The object could not be written.")
	case err != nil:
		return u, unavailable(err)
	case n > o.MaxBytes:
		return u, tooLarge("The object is larger than its grant allows.")
	case o.Size >= 0 && n != o.Size:
		return u, mismatch("The object has another size than was told.")
	case o.SHA256 != "" && u.SHA256 != o.SHA256:
		return u, mismatch("The object has another sha256 than was told.")
	}
	if err := f.Close(); err != nil {
		return u, invalid("The object could not be written.")
	}
	return u, nil
}

// disk tells errors of writing from those of reading.
type disk struct{ f *os.File }

type diskError struct{ error }

func (d disk) Write(p []byte) (int, error) {
	n, err := d.f.Write(p)
	if err != nil {
		err = &diskError{err}
	}
	return n, err
}
