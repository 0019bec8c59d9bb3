package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// fileCase measures loading and collecting of the files in an artifact folder: a run with both steps, less the same run without.
func (b *bench) fileCase(ctx context.Context, name, work, target string, fill func(dir string) error) ([]row, error) {
	dir, err := b.bundle(name, map[string]any{"with": []step{b.containerTask(),
		{"id": "load", "type": "load_artifact", "sandbox_name": "box", "artifact_id": "data", "destination_path": "/data/in"},
		{"id": "out", "type": "collect_artifacts", "sandbox_name": "box", "base_path": "/data/in"}},
		"without": []step{b.containerTask()}})
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "artifacts", "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	if err := fill(data); err != nil {
		return nil, err
	}
	limit, err := repeat(3, func() (usage, error) { return b.dockerCopy(ctx, data) })
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, provider := range []string{"docker", "local"} {
		with, err := b.ourRun(ctx, 3, dir, provider, "--task", "with")
		if err != nil {
			return nil, err
		}
		without, err := b.ourRun(ctx, 3, dir, provider, "--task", "without")
		if err != nil {
			return nil, err
		}
		r := row{work: work + ", " + provider, ours: seconds(with.wall - without.wall), limit: wall(limit), what: "(docker cp in and out)", target: target}
		if provider == "local" {
			r.ref = b.refFiles(ctx, dir)
		}
		rows = append(rows, r, row{work: work + ", " + provider + ", memory", ours: measure{value: with.rss, unit: "MiB"}, target: "flat, under 64 MiB"})
	}
	return rows, nil
}

// refFiles is what the reference takes for the two steps.
func (b *bench) refFiles(ctx context.Context, dir string) measure {
	ctx, cancel := context.WithTimeout(ctx, refLimit)
	defer cancel()
	with := b.refRun(ctx, 1, dir, "--task", "with")
	if with.unit == "" {
		return with
	}
	without := b.refRun(ctx, 1, dir, "--task", "without")
	if without.unit == "" {
		return without
	}
	return seconds(with.value - without.value)
}

// dockerCopy copies a tree into a container and out again.
func (b *bench) dockerCopy(ctx context.Context, tree string) (usage, error) {
	var id [4]byte
	_, _ = rand.Read(id[:])
	name := "agentenv-bench-" + hex.EncodeToString(id[:])
	if _, err := command(ctx, nil, "docker", "create", "--name", name, b.image, "/bin/true"); err != nil {
		return usage{}, err
	}
	defer func() {
		_, _ = command(context.WithoutCancel(ctx), nil, "docker", "rm", "-f", name)
	}()
	out := filepath.Join(b.dir, "out-"+name)
	defer os.RemoveAll(out)
	start := time.Now()
	if _, err := command(ctx, nil, "docker", "cp", tree+"/.", name+":/data"); err != nil {
		return usage{}, err
	}
	if _, err := command(ctx, nil, "docker", "cp", name+":/data/.", out); err != nil {
		return usage{}, err
	}
	return usage{wall: time.Since(start).Seconds()}, nil
}

func (b *bench) smallFiles(ctx context.Context) ([]row, error) {
	return b.fileCase(ctx, "small", "load + collect of 1,000 small files", "1.5 times at most", func(dir string) error {
		for i := range 1000 {
			sub := filepath.Join(dir, fmt.Sprintf("d%02d", i%20))
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%04d.txt", i)), []byte(strings.Repeat(fmt.Sprint(i, " "), 200)), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) bigFile(ctx context.Context) ([]row, error) {
	return b.fileCase(ctx, "big", fmt.Sprintf("load + collect of one file of %d MiB", b.big>>20), "1.5 times at most", func(dir string) error {
		f, err := os.Create(filepath.Join(dir, "big.bin"))
		if err != nil {
			return err
		}
		if _, err := io.CopyN(f, rand.Reader, b.big); err != nil {
			return err
		}
		return f.Close()
	})
}
