//go:build integration

package engine_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv/sandbox/engine"
	"agentenv/sandbox/place"
	"agentenv/sandbox/sandboxtest/images"
)

// BenchmarkAgainstDockerCopy alternates moving files in or out, hashed and checked, with docker cp of the same files, and
// prints the ratio of their medians.
func BenchmarkAgainstDockerCopy(b *testing.B) {
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
	small, big := b.TempDir(), b.TempDir()
	for i := range 1000 {
		write(b, filepath.Join(small, fmt.Sprintf("%d/%d", i%10, i)), 4096)
	}
	write(b, filepath.Join(big, "x"), 1<<30)
	for name, dir := range map[string]string{"1000 small": small, "1 GiB": big} {
		at, from := "/"+strings.Fields(name)[1], sources(b, dir)
		alternate(b, "in/"+name, func() error {
			_, err := place.Put(b.Context(), c, at, from, nil)
			return err
		}, "cp", dir, c.Name()+":/theirs-"+at[1:])
		alternate(b, "out/"+name, func() error { return getTo(b.Context(), c, at, b.TempDir()) },
			"cp", c.Name()+":"+at, b.TempDir())
	}
}

func alternate(b *testing.B, name string, ours func() error, theirs ...string) {
	b.Run(name, func(b *testing.B) {
		var us, them []time.Duration
		for b.Loop() {
			began := time.Now()
			if err := ours(); err != nil {
				b.Fatal(err)
			}
			us = append(us, time.Since(began))
			began = time.Now()
			if out, err := exec.Command("docker", theirs...).CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			them = append(them, time.Since(began))
		}
		slices.Sort(us)
		slices.Sort(them)
		b.ReportMetric(us[len(us)/2].Seconds()/them[len(them)/2].Seconds(), "ratio")
		b.ReportMetric(us[len(us)/2].Seconds(), "ours-s")
		b.ReportMetric(them[len(them)/2].Seconds(), "docker-s")
	})
}

func write(b *testing.B, file string, size int64) {
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	var f *os.File
	if err == nil {
		f, err = os.Create(file)
	}
	if err == nil {
		_, err = io.CopyN(f, rand.Reader, size)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
}

// sources are the files below dir with their hashes, as an object store knows them.
func sources(b *testing.B, dir string) []place.Source {
	var out []place.Source
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		sum := sha256.New()
		f, err := os.Open(p)
		if err == nil {
			_, err = io.Copy(sum, f)
			f.Close()
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, p)
		out = append(out, place.Source{Name: name, Size: fi.Size(), SHA256: hex.EncodeToString(sum.Sum(nil)), Body: func(context.Context) (io.ReadCloser, error) { return os.Open(p) }})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// getTo collects root into dir and hashes every file on the way.
func getTo(ctx context.Context, p place.Place, root, dir string) error {
	g, err := p.Get(ctx, place.GetRequest{Roots: []string{root}})
	if err != nil {
		return err
	}
	defer g.Close()
	for {
		e, err := g.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = e.Err
		}
		if err != nil {
			return err
		}
		to := filepath.Join(dir, e.Name)
		if e.Kind == place.Dir {
			err = os.MkdirAll(to, 0o755)
		} else {
			err = save(to, g)
		}
		if err != nil {
			return err
		}
	}
}

func save(to string, r io.Reader) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyBuffer(io.MultiWriter(f, sha256.New()), struct{ io.Reader }{r}, make([]byte, 256<<10))
	return err
}
