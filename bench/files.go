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
func (b *bench) fileCase(ctx context.Context, name, work, memory string, fill func(dir string) error) ([]row, error) {
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
	var rows []row
	for _, provider := range []string{"docker", "local"} {
		with, without := b.ourRunner(dir, provider, "--task", "with"), b.ourRunner(dir, provider, "--task", "without")
		// In turns, since what one way of copying leaves behind slows the next: a file system does not use the places of files that
		// were just deleted again for a while.
		us, err := turns(ctx, 3, func(ctx context.Context) (usage, error) { return b.dockerCopy(ctx, data) },
			func(ctx context.Context) (usage, error) { return b.dockerCopy(ctx, "") }, with, without)
		if err != nil {
			return nil, err
		}
		copied, empty, whole, rest := us[0], us[1], us[2], us[3]
		r := row{work: work + ", " + provider, ours: seconds(whole.wall - rest.wall), limit: seconds(copied.wall - empty.wall), what: "(docker cp in and out)", target: "1.5 times at most"}
		if provider == "local" {
			r.ref = b.refFiles(ctx, dir)
		}
		rows = append(rows, r, row{work: work + ", " + provider + ", memory", ours: measure{value: whole.rss, unit: "MiB"}, target: memory})
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

// dockerCopy makes a container, copies a tree into it and out again, unless there is none, and removes the container: what our runs do too.
func (b *bench) dockerCopy(ctx context.Context, tree string) (usage, error) {
	var id [4]byte
	_, _ = rand.Read(id[:])
	name := "agentenv-bench-" + hex.EncodeToString(id[:])
	out := filepath.Join(b.dir, "out-"+name)
	defer os.RemoveAll(out)
	start := time.Now()
	lines := [][]string{{"create", "--name", name, b.image, "/bin/true"}, {"cp", tree + "/.", name + ":/data"}, {"cp", name + ":/data/.", out}, {"rm", "-f", name}}
	if tree == "" {
		lines = [][]string{lines[0], lines[3]}
	}
	for _, line := range lines {
		if _, err := command(ctx, nil, "docker", line...); err != nil {
			_, _ = command(context.WithoutCancel(ctx), nil, "docker", "rm", "-f", name)
			return usage{}, err
		}
	}
	return usage{wall: time.Since(start).Seconds()}, nil
}

func (b *bench) smallFiles(ctx context.Context) ([]row, error) {
	return b.fileCase(ctx, "small", "load + collect of 1,000 small files", "", func(dir string) error {
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
	return b.fileCase(ctx, "big", fmt.Sprintf("load + collect of one file of %d MiB", b.big>>20), "flat, under 64 MiB", func(dir string) error {
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
