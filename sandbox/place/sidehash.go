package place

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"sync"

	"agentenv/fault"
)

// sideHash reads a source of a known size and hashes it in a goroutine beside the reading, which ends with Close.
type sideHash struct {
	src   io.ReadCloser
	name  string
	size  int64
	n     int64
	moved func(int)

	mu     sync.Mutex
	closed bool

	bad   error     // what the source did wrong
	small hash.Hash // of a source that a goroutine does not pay off for
	fresh chan []byte
	used  chan []byte
	sum   chan hash.Hash
}

const sideBlock = 256 << 10

// newSideHash returns a reader of src, which must hold exactly size bytes; without want nothing is hashed.
func newSideHash(src io.ReadCloser, name string, size int64, want bool, moved func(int)) *sideHash {
	s := &sideHash{src: src, name: name, size: size, moved: moved}
	if !want {
		return s
	}
	if size < 2*sideBlock {
		s.small = sha256.New()
		return s
	}
	s.fresh, s.used, s.sum = make(chan []byte, 2), make(chan []byte, 2), make(chan hash.Hash, 1)
	s.used <- make([]byte, sideBlock)
	s.used <- make([]byte, sideBlock)
	go func() {
		h := sha256.New()
		for b := range s.fresh {
			h.Write(b)
			s.used <- b[:cap(b)]
		}
		s.sum <- h
	}()
	return s
}

// Read reads on; after Close, which waits for a Read under way, it fails: an HTTP client may read after its request ended.
func (s *sideHash) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	n, err := s.src.Read(p)
	s.n += int64(n)
	switch {
	case s.n > s.size:
		s.bad = fault.New(fault.Conflict, "%s: its content is longer than the %d bytes that were announced", s.name, s.size)
		return 0, s.bad
	case err == io.EOF && s.n < s.size:
		s.bad = fault.New(fault.Conflict, "%s: its content ends after %d of the %d bytes that were announced", s.name, s.n, s.size)
		return 0, s.bad
	case err != nil && err != io.EOF:
		s.bad = fault.At(err, "read %s", s.name)
		return 0, s.bad
	}
	if s.small != nil {
		s.small.Write(p[:n])
	}
	for rest := p[:n]; s.fresh != nil && len(rest) > 0; {
		b := <-s.used
		k := copy(b, rest)
		s.fresh <- b[:k]
		rest = rest[k:]
	}
	s.moved(n)
	return n, err
}

// Close ends the goroutine and returns the sha256 of what was read, "" when none was wanted.
func (s *sideHash) Close() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.src.Close()
	if s.small != nil {
		return hex.EncodeToString(s.small.Sum(nil))
	}
	if s.fresh == nil {
		return ""
	}
	close(s.fresh)
	return hex.EncodeToString((<-s.sum).Sum(nil))
}
