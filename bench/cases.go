package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite" // one commit is the limit of a step

	"agentenv/sandbox/engine"
	"agentenv/sandbox/sandboxtest/images"
)

// bench holds what the cases share.
type bench struct {
	program, reference string
	dir                string
	image              string // smallest test image, with a program called true
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
	dir, err := os.MkdirTemp("", "agentenv-bench-*")
	if err != nil {
		return nil, err
	}
	b := &bench{program: program, reference: reference, dir: dir, big: big}
	e, err := engine.Open(ctx, engine.Options{})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if b.image, err = images.BusyBox(ctx, e); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *bench) close() { os.RemoveAll(b.dir) }

func (b *bench) cases() []testCase {
	return []testCase{
		{"start-up", b.startUp}, {"hello", b.hello}, {"64 VM tasks", b.vmTasks}, {"no-op step", b.noop}, {"one container", b.oneContainer},
		{"20 containers", b.twentyContainers}, {"1,000 small files", b.smallFiles}, {"one big file", b.bigFile},
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

func (b *bench) noop(ctx context.Context) ([]row, error) {
	const n = 300
	steps := make([]step, n)
	for i := range steps {
		steps[i] = step{"id": fmt.Sprint("s", i), "type": "teardown_sandboxes", "sandbox_names": []string{"ghost"}}
	}
	long, err := b.bundle("noop300", map[string]any{"t": steps})
	if err != nil {
		return nil, err
	}
	short, err := b.bundle("noop1", map[string]any{"t": steps[:1]})
	if err != nil {
		return nil, err
	}
	ours, ref, err := b.both(ctx, 3, 1, b.home, "run", long)
	if err != nil {
		return nil, err
	}
	ours1, ref1, err := b.both(ctx, 3, 1, b.home, "run", short)
	if err != nil {
		return nil, err
	}
	each := func(many, one usage) measure {
		if many.wall == 0 || one.wall == 0 {
			return measure{}
		}
		return seconds((many.wall - one.wall) / (n - 1))
	}
	commit, err := b.commit(ctx)
	return []row{{work: "a no-op step, journaled", ours: each(ours, ours1), ref: each(ref, ref1), limit: commit, what: "(one commit)", target: "at most 4 commits, under 2 ms"}}, err
}

// commit is what one durable SQLite commit takes here.
func (b *bench) commit(ctx context.Context) (measure, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.dir, "commit.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return measure{}, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "CREATE TABLE t (doc TEXT)"); err != nil {
		return measure{}, err
	}
	text := strings.Repeat("x", 600)
	const n = 300
	start := time.Now()
	for range n {
		if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (?)", text); err != nil {
			return measure{}, err
		}
	}
	return seconds(time.Since(start).Seconds() / n), nil
}

func (b *bench) containerTask() step {
	return step{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "container", "image": b.image, "port": 8000}
}

func dockerRun(ctx context.Context, image string) (usage, error) {
	return command(ctx, nil, "docker", "run", "--rm", image, "/bin/true")
}

func (b *bench) oneContainer(ctx context.Context) ([]row, error) {
	dir, err := b.bundle("one", map[string]any{"t": []step{b.containerTask()}})
	if err != nil {
		return nil, err
	}
	limit, err := repeat(5, func() (usage, error) { return dockerRun(ctx, b.image) })
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, provider := range []string{"docker", "local"} {
		ours, err := b.ourRun(ctx, 5, dir, provider)
		if err != nil {
			return nil, err
		}
		r := row{work: "the smallest container task, " + provider, ours: wall(ours), limit: wall(limit), what: "(docker run --rm)", target: "1.5 times at most"}
		if provider == "local" {
			r.ref = b.refRun(ctx, dir)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// ourRun runs a bundle n times after one run that fills stores and caches.
func (b *bench) ourRun(ctx context.Context, n int, dir, provider string, more ...string) (usage, error) {
	env := b.home()
	args := append([]string{"run", dir, "--sandbox", provider}, more...)
	if _, err := command(ctx, env, b.program, args...); err != nil {
		return usage{}, err
	}
	return repeat(n, func() (usage, error) { return command(ctx, env, b.program, args...) })
}

func (b *bench) refRun(ctx context.Context, dir string) measure {
	if b.reference == "" {
		return measure{}
	}
	env := b.home()
	if _, err := command(ctx, env, b.reference, "run", dir); err != nil {
		fmt.Fprintf(os.Stderr, "the reference failed: %v\n", err)
		return measure{}
	}
	u, err := command(ctx, env, b.reference, "run", dir)
	if err != nil {
		return measure{}
	}
	return wall(u)
}

func (b *bench) twentyContainers(ctx context.Context) ([]row, error) {
	tasks := map[string]any{}
	for i := range 20 {
		tasks[fmt.Sprintf("t%02d", i)] = []step{b.containerTask()}
	}
	dir, err := b.bundle("twenty", tasks)
	if err != nil {
		return nil, err
	}
	limit, err := repeat(3, func() (usage, error) {
		start := time.Now()
		var g errgroup.Group
		for range 20 {
			g.Go(func() error { _, err := dockerRun(ctx, b.image); return err })
		}
		err := g.Wait()
		return usage{wall: time.Since(start).Seconds()}, err
	})
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, provider := range []string{"docker", "local"} {
		ours, err := b.ourRun(ctx, 3, dir, provider, "-j", "20")
		if err != nil {
			return nil, err
		}
		r := row{work: "20 of them at once, " + provider, ours: wall(ours), limit: wall(limit), what: "(20 docker run)", target: "1.5 times at most"}
		if provider == "local" {
			r.ref = b.refRun(ctx, dir)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

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
		rows = append(rows, row{work: work + ", " + provider, ours: seconds(with.wall - without.wall), limit: wall(limit), what: "(docker cp in and out)", target: target},
			row{work: work + ", " + provider + ", memory", ours: measure{with.rss, "MiB"}, target: "flat, under 64 MiB"})
	}
	return rows, nil
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
