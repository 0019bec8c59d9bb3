package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/moby/client"

	"agentenv/sandbox/engine"
	"agentenv/sandbox/sandboxtest/images"
)

// bench holds what the cases share.
type bench struct {
	program, reference string
	dir                string
	image              string // the smallest test image under a name of this bench's, with a program called true
	big                int64
	state              int
}

type testCase struct {
	name string
	run  func(ctx context.Context) ([]row, error)
}

func newBench(ctx context.Context, program, reference string, big int64) (*bench, error) {
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("no program to measure: %w (make build)", err)
	}
	if _, err := os.Stat(reference); err != nil {
		fmt.Fprintf(os.Stderr, "the reference is not installed (%v); its column stays empty\n", err)
		reference = ""
	}
	e, err := engine.Open(ctx, engine.Options{})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	base, err := images.BusyBox(ctx, e)
	if err != nil {
		return nil, err
	}
	// The reference asks a registry for every image that it does not take for a build of its own.
	image := "agentenv-test/bench-" + strings.ToLower(rand.Text()[:8]) + ":1"
	if err := images.Built(ctx, e, base, image); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "agentenv-bench-*")
	return &bench{program: program, reference: reference, dir: dir, image: image, big: big}, err
}

// close removes what the bench made here.
func (b *bench) close() {
	os.RemoveAll(b.dir)
	e, err := engine.Open(context.Background(), engine.Options{})
	if err == nil {
		_, err = e.Client().ImageRemove(context.Background(), b.image, client.ImageRemoveOptions{})
		e.Close()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "the image %s stays: %v\n", b.image, err)
	}
}

func (b *bench) cases() []testCase {
	return []testCase{
		{"start-up", b.startUp}, {"hello", b.hello}, {"64 VM tasks", b.vmTasks}, {"no-op step", b.noop}, {"one container", b.oneContainer},
		{"20 containers", b.twentyContainers}, {"1,000 small files", b.smallFiles}, {"one big file", b.bigFile},
		{"grown", b.grown}, {"10,000 short runs", b.manyRuns}, {"2,000 runs that wait", b.waitingRuns}, {"8 processes", b.manyWriters}, {"200 agents", b.agents},
	}
}

// home returns an environment of its own, with empty stores.
func (b *bench) home() []string {
	b.state++
	dir := filepath.Join(b.dir, fmt.Sprint("home", b.state))
	_ = os.MkdirAll(dir, 0o755)
	return []string{"HOME=" + dir, "XDG_STATE_HOME=" + filepath.Join(dir, "state"), "DOCKER_CONFIG=" + os.ExpandEnv("$HOME/.docker")}
}

// both runs one command line of each program.
func (b *bench) both(ctx context.Context, n, refs int, env func() []string, args ...string) (ours, ref usage, err error) {
	e := env()
	if _, err = command(ctx, e, b.program, args...); err != nil {
		return
	}
	if ours, err = repeat(n, func() (usage, error) { return command(ctx, e, b.program, args...) }); err != nil || b.reference == "" {
		return
	}
	e = env()
	var rerr error
	if ref, rerr = repeat(refs, func() (usage, error) { return command(ctx, e, b.reference, args...) }); rerr != nil {
		fmt.Fprintf(os.Stderr, "the reference failed: %v\n", rerr)
		ref = usage{}
	}
	return
}

func wall(u usage) measure {
	if u.wall == 0 {
		return measure{}
	}
	return seconds(u.wall)
}

func cpu(u usage) measure {
	if u.wall == 0 {
		return measure{}
	}
	return seconds(u.cpu)
}

func (b *bench) startUp(ctx context.Context) ([]row, error) {
	ours, ref, err := b.both(ctx, 10, 3, b.home, "--version")
	return []row{{work: "agent-env --version", ours: wall(ours), ref: wall(ref), target: "100 times faster, under 30 ms"}}, err
}

func (b *bench) hello(ctx context.Context) ([]row, error) {
	ours, ref, err := b.both(ctx, 10, 3, b.home, "run", "hello")
	return []row{{work: "hello, start to exit", ours: wall(ours), ref: wall(ref), target: "25 times faster"}}, err
}

// bundle writes a bundle folder with the given task files.
func (b *bench) bundle(name string, tasks map[string]any) (string, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Join(dir, "tasks"), 0o755); err != nil {
		return "", err
	}
	for n, steps := range tasks {
		text, err := json.MarshalIndent(steps, "", "  ")
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, "tasks", n+".json"), text, 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

type step = map[string]any

func (b *bench) vmTasks(ctx context.Context) ([]row, error) {
	tasks := map[string]any{}
	for i := range 64 {
		tasks[fmt.Sprintf("t%02d", i)] = []step{
			{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
			{"id": "check", "type": "verify_sandbox", "sandbox_name": "box", "verifier_id": "check", "criteria": []step{{"type": "bash_cmd_succeeds", "bash_cmd": "true"}}},
		}
	}
	dir, err := b.bundle("vm64", tasks)
	if err != nil {
		return nil, err
	}
	ours, ref, err := b.both(ctx, 3, 1, b.home, "run", dir)
	return []row{
		{work: "64 VM tasks, CPU", ours: cpu(ours), ref: cpu(ref), target: "15 times less"},
		{work: "64 VM tasks, wall", ours: wall(ours), ref: wall(ref)},
	}, err
}
