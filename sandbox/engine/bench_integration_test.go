//go:build integration

package engine_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"testing"

	"agentenv/sandbox/engine"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
)

func BenchmarkSmallestContainer(b *testing.B) {
	e, err := engine.Open(b.Context(), engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	ref, err := images.BusyBox(b.Context(), e)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c, err := e.Run(b.Context(), engine.RunSpec{Name: "agentenv-test-" + strings.ToLower(rand.Text()[:10]), Image: ref,
			Publish: []engine.Publish{{HostIP: "127.0.0.1", ContainerPort: 8000}}})
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Remove(b.Context(), c.ID()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFiles(b *testing.B) {
	e, err := engine.Open(b.Context(), engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	ref, err := images.BusyBox(b.Context(), e)
	if err != nil {
		b.Fatal(err)
	}
	c, err := e.Run(b.Context(), engine.RunSpec{Name: "agentenv-test-" + strings.ToLower(rand.Text()[:10]), Image: ref})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Remove(context.Background(), c.ID())
	var small []place.Source
	body := make([]byte, 4096)
	for i := range 1000 {
		small = append(small, place.Bytes(fmt.Sprintf("%d/%d", i%10, i), 0, body))
	}
	const gib = 1 << 30
	big := []place.Source{{Name: "x", Size: gib, Body: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(zeros{}, gib)), nil
	}}}
	for name, src := range map[string][]place.Source{"1000 small": small, "1 GiB": big} {
		dir := "/" + strings.Fields(name)[1]
		b.Run("in/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := place.Put(b.Context(), c, dir, src, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("out/"+name, func(b *testing.B) {
			for b.Loop() {
				g, err := c.Get(b.Context(), place.GetRequest{Roots: []string{dir}})
				if err != nil {
					b.Fatal(err)
				}
				for _, err = g.Next(); err == nil; _, err = g.Next() {
					if _, err := io.Copy(io.Discard, g); err != nil {
						b.Fatal(err)
					}
				}
				g.Close()
				if err != io.EOF {
					b.Fatal(err)
				}
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
