package localfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	mathrand "math/rand/v2"
	"os"

	"agentenv/fault"
	"agentenv/store/object"
)

const (
	chunkSize = 256 << 10
	// aloneSize is from how many bytes on a chunk is worth being written and hashed beside the reading of the next one.
	aloneSize = 64 << 10
	// flushSize is how many written bytes are handed to the disk at a time, so that the sync at the end finds little to do.
	flushSize = 8 << 20
)

// copier writes bodies to files and hashes them on the way. It is used by one goroutine.
type copier struct {
	bufs [2][]byte
	hash hash.Hash
}

// copy writes an item's bytes to f and returns their number and sha256.
func (c *copier) copy(ctx context.Context, f *os.File, it object.Item) (size int64, sum string, err error) {
	if c.hash == nil {
		c.hash, c.bufs = sha256.New(), [2][]byte{make([]byte, chunkSize), make([]byte, chunkSize)}
	}
	c.hash.Reset()
	var busy chan error // the chunk before this one, while it is under way
	wait := func() error {
		if busy == nil {
			return nil
		}
		err := <-busy
		busy = nil
		return err
	}
	defer wait() //nolint:errcheck // an earlier error is on its way out
	var flushed int64
	for i := 0; ; i ^= 1 {
		if ctx.Err() != nil {
			return 0, "", fault.Wrap(fault.KindOf(ctx.Err()), context.Cause(ctx), "writing the object %q", short(it.Key))
		}
		n, rerr := fill(it.Body, c.bufs[i])
		chunk := c.bufs[i][:n]
		err := wait()
		switch {
		case err != nil:
		case n >= aloneSize:
			busy = make(chan error, 1)
			go func(done chan<- error) { done <- c.take(f, chunk) }(busy)
		case n > 0:
			c.hash.Write(chunk)
			_, err = f.Write(chunk)
		}
		if size += int64(n); err == nil && size-flushed >= 2*flushSize {
			startFlush(f, flushed, flushSize)
			flushed += flushSize
		}
		tooMuch := it.Size >= 0 && size > it.Size
		if err == nil && (rerr != nil || tooMuch) {
			err = wait()
		}
		switch {
		case err != nil:
			return 0, "", fault.Wrap(diskKind(err), err, "writing the object %q%s", short(it.Key), remedy(err))
		case tooMuch:
			return 0, "", fault.New(fault.Invalid, "object %q: %d bytes were announced, more than %d came", short(it.Key), it.Size, it.Size)
		case errors.Is(rerr, io.EOF) && it.Size >= 0 && size != it.Size:
			return 0, "", fault.New(fault.Invalid, "object %q: %d bytes were announced, %d came", short(it.Key), it.Size, size)
		case errors.Is(rerr, io.EOF):
			return size, hex.EncodeToString(c.hash.Sum(nil)), nil
		case rerr != nil:
			return 0, "", fault.At(rerr, "reading what is to be stored as %q", short(it.Key))
		}
	}
}

// take hashes a chunk beside writing it.
func (c *copier) take(f *os.File, chunk []byte) error {
	hashed := make(chan struct{})
	go func() {
		c.hash.Write(chunk)
		close(hashed)
	}()
	_, err := f.Write(chunk)
	<-hashed
	return err
}

// fill reads until buf is full or the body ends; unlike io.ReadFull it keeps the body's own error.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = r.Read(buf[n:])
		n += k
	}
	return n, err
}

// randomNanos returns 0 to 999,999 ns.
func randomNanos() int64 { return mathrand.Int64N(1e6) }
