package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

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
			r.ref = b.refRow(ctx, 3, dir)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// ourRun runs a bundle n times after one run that fills stores and caches.
func (b *bench) ourRun(ctx context.Context, n int, dir, provider string, more ...string) (usage, error) {
	us, err := turns(ctx, n, b.ourRunner(dir, provider, more...))
	if err != nil {
		return usage{}, err
	}
	return us[0], nil
}

// ourRunner returns what runs a bundle folder in stores of its own.
func (b *bench) ourRunner(dir, provider string, more ...string) func(context.Context) (usage, error) {
	env := b.home()
	args := append([]string{"run", dir, "--sandbox", provider}, more...)
	return func(ctx context.Context) (usage, error) { return command(ctx, env, b.program, args...) }
}

// refLimit is how long the reference may take for one row, the run before that fills stores and caches included.
const refLimit = 10 * time.Minute

// refRun is ourRun for the reference; what keeps it from a figure is said in its place.
func (b *bench) refRun(ctx context.Context, n int, dir string, more ...string) measure {
	if b.reference == "" {
		return measure{}
	}
	env := b.home()
	run := func() (usage, error) { return command(ctx, env, b.reference, append([]string{"run", dir}, more...)...) }
	_, err := run()
	var u usage
	if err == nil {
		u, err = repeat(n, run)
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return measure{note: fmt.Sprintf("over %.0f s", refLimit.Seconds())}
	case err != nil:
		fmt.Fprintf(os.Stderr, "the reference failed: %v\n", err)
		return measure{note: "failed"}
	}
	return wall(u)
}

// refRow is refRun for a whole row.
func (b *bench) refRow(ctx context.Context, n int, dir string) measure {
	ctx, cancel := context.WithTimeout(ctx, refLimit)
	defer cancel()
	return b.refRun(ctx, n, dir)
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
			r.ref = b.refRow(ctx, 1, dir)
		}
		rows = append(rows, r)
	}
	return rows, nil
}
