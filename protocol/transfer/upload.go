package transfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
)

// Source is what an upload sends: it is opened anew for every attempt.
type Source struct {
	Size int64
	Open func() (io.ReadCloser, error)
}

// File returns a source that reads a regular file, measured now; anything else is an error of code invalid_transfer.
func File(name string) (Source, error) {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return Source{}, invalid("There is no file to send.")
	}
	return Source{Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(name) }}, nil
}

// Bytes returns a source of bytes in memory.
func Bytes(b []byte) Source {
	return Source{Size: int64(len(b)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

// Upload writes an object by its grant and returns its size and sha256. The source must give exactly the bytes it was measured with. Errors
// are *Error, or the context's.
func (c *Client) Upload(ctx context.Context, o WriteObject, s Source) (Uploaded, error) {
	if s.Size > o.MaxBytes {
		return Uploaded{}, tooLarge("The object is larger than its grant allows.")
	}
	var e *exact
	err := c.repeat(ctx, o.Write.ExpiresAt, func() *Error {
		return c.send(ctx, request{method: "PUT", url: o.Write.URL, headers: o.Write.Headers, defaults: map[string]string{"Content-Type": o.MediaType},
			length: s.Size, body: func() (io.Reader, func(), error) {
				var done func()
				var err error
				e, done, err = s.open()
				return e, done, err
			}})
	})
	if err != nil {
		return Uploaded{}, err
	}
	if terr := e.whole(); terr != nil {
		return Uploaded{}, terr
	}
	return Uploaded{Size: s.Size, SHA256: e.sum()}, nil
}

func (s Source) open() (*exact, func(), error) {
	f, err := s.Open()
	if err != nil {
		return nil, nil, invalid("There is no file to send.")
	}
	e := &exact{r: f, left: s.Size, hash: sha256.New()}
	if s.Size == 0 {
		e.finish() // nobody reads a body without bytes
	}
	return e, func() { _ = f.Close() }, nil
}

// exact reads exactly as many bytes as were measured, and hashes them. What it finds is settled before the last byte is given away: the
// connection may still ask for more when the answer is there already.
type exact struct {
	r    io.Reader
	hash hash.Hash

	mu   sync.Mutex
	left int64
	done bool // nothing more is read
	err  *Error
}

func changed() *Error { return invalid("The file changed while it was sent.") }

func (e *exact) Read(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
		return 0, e.err
	case e.done:
		return 0, io.EOF
	}
	n, err := e.r.Read(p)
	switch {
	case int64(n) > e.left, errors.Is(err, io.EOF) && int64(n) < e.left:
		e.err = changed()
	case err != nil && !errors.Is(err, io.EOF):
		e.err = invalid("The file could not be read.")
	case int64(n) == e.left:
		e.finish()
	}
	if e.err != nil {
		return 0, e.err
	}
	e.left -= int64(n)
	e.hash.Write(p[:n])
	if e.done {
		return n, io.EOF
	}
	return n, nil
}

// finish makes sure that the source has no more than was measured.
func (e *exact) finish() {
	e.done = true
	var one [1]byte
	if n, _ := io.ReadFull(e.r, one[:]); n > 0 {
		e.err = changed()
	}
}

// whole reports a source that was not read to its end, or had more or less than was measured.
func (e *exact) whole() *Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil && e.left > 0 {
		return changed()
	}
	return e.err
}

// sum is the sha256 of what was read, once it was read whole.
func (e *exact) sum() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return hex.EncodeToString(e.hash.Sum(nil))
}

// Namespace writes objects below a granted path, one at a time. Safe for concurrent use.
type Namespace struct {
	c *Client
	g NamespaceGrant

	turn  chan struct{}
	mu    sync.Mutex
	sizes map[string]int64
	total int64
}

// Namespace returns a writer for a grant; its limits count over all objects it has written, each path once at its newest size.
func (c *Client) Namespace(g NamespaceGrant) *Namespace {
	return &Namespace{c: c, g: g, turn: make(chan struct{}, 1), sizes: map[string]int64{}}
}

// Put writes the object at a path below the root, over one that is there. Errors are *Error, or the context's; nothing is counted then.
func (n *Namespace) Put(ctx context.Context, name string, s Source) error {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !Relative(name) {
		return invalid("The path of the object is not a plain relative one.")
	}
	if err := n.fits(name, s.Size); err != nil {
		return err
	}
	boundary := "agentenv-" + randomHex()
	key := path.Join(n.g.RootPath, name)
	var head bytes.Buffer
	field := func(k, v string) {
		fmt.Fprintf(&head, "--%s\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n%s\r\n", boundary, quoted(k), v)
	}
	fields := maps.Clone(n.g.Write.Fields)
	if fields == nil {
		fields = map[string]string{}
	}
	fields[n.g.Write.PathField] = key
	if _, set := fields["Content-Type"]; !set {
		fields["Content-Type"] = "application/octet-stream"
	}
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		field(k, fields[k])
	}
	fmt.Fprintf(&head, "--%s\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"%s\"\r\nContent-Type: application/octet-stream\r\n\r\n",
		boundary, quoted(n.g.Write.FileField), quoted(path.Base(name)))
	tail := "\r\n--" + boundary + "--\r\n"
	var e *exact
	err := n.c.repeat(ctx, n.g.ExpiresAt, func() *Error {
		return n.c.send(ctx, request{method: "POST", url: n.g.Write.URL, headers: n.g.Write.Headers,
			defaults: map[string]string{"Content-Type": "multipart/form-data; boundary=" + boundary},
			length:   int64(head.Len()) + s.Size + int64(len(tail)), body: func() (io.Reader, func(), error) {
				var done func()
				var err error
				if e, done, err = s.open(); err != nil {
					return nil, nil, err
				}
				return io.MultiReader(bytes.NewReader(head.Bytes()), e, strings.NewReader(tail)), done, nil
			}})
	})
	if err != nil {
		return err
	}
	if terr := e.whole(); terr != nil {
		return terr
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.total += s.Size - n.sizes[name]
	n.sizes[name] = s.Size
	return nil
}

// fits checks the limits of the grant with one more object.
func (n *Namespace) fits(name string, size int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, again := n.sizes[name]
	total, count := n.total-before+size, int64(len(n.sizes))
	if !again {
		count++
	}
	switch {
	case size > n.g.MaxObjectBytes:
		return tooLarge("The object is larger than its grant allows.")
	case count > n.g.MaxObjects:
		return tooLarge("The grant allows no more objects.")
	case total > n.g.MaxTotal:
		return tooLarge("The objects together are larger than their grant allows.")
	}
	return nil
}

func quoted(s string) string {
	return strings.NewReplacer("\\", "\\\\", `"`, "\\\"", "\r", "%0D", "\n", "%0A").Replace(s)
}

func randomHex() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
