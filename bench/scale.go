package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentenv/store/doc"
	"agentenv/store/document/sqlite"
)

// noopSteps returns n steps that do nothing.
func noopSteps(n int) []step {
	steps := make([]step, n)
	for i := range steps {
		steps[i] = step{"id": fmt.Sprint("s", i), "type": "teardown_sandboxes", "sandbox_names": []string{"ghost"}}
	}
	return steps
}

// stored makes a home that holds tasks, by id.
func (b *bench) stored(ctx context.Context, tasks map[string][]step) ([]string, error) {
	env := b.home()
	for id, steps := range tasks {
		text, err := json.Marshal(steps)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(b.dir, id+".json")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return nil, err
		}
		if _, err := command(ctx, env, b.program, "task", "create", file, "--id", id); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// grown shows what a no-op step costs beside 5 MB of metadata that it does not touch, and after 10,000 others.
func (b *bench) grown(ctx context.Context) ([]row, error) {
	env, err := b.stored(ctx, map[string][]step{"one": noopSteps(1), "some": noopSteps(301), "many": noopSteps(10_000)})
	if err != nil {
		return nil, err
	}
	contexts := map[string]string{}
	for name, size := range map[string]int{"empty": 0, "5 MB": 5_000_000} {
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"ballast": strings.Split(strings.Repeat("0123456789,", size/11), ",")}})
		if err != nil {
			return nil, err
		}
		contexts[name] = filepath.Join(b.dir, strings.ReplaceAll(name, " ", "")+".json")
		if err := os.WriteFile(contexts[name], text, 0o644); err != nil {
			return nil, err
		}
	}
	each := func(steps int, task, context string) (measure, error) {
		var walls [2]float64
		for i, id := range []string{task, "one"} {
			u, err := repeat(3, func() (usage, error) {
				return command(ctx, env, b.program, "task", "run", "--id", id, "--context-json", contexts[context], "--output-dir", filepath.Join(b.dir, "out"))
			})
			if err != nil {
				return measure{}, err
			}
			walls[i] = u.wall
		}
		return seconds((walls[0] - walls[1]) / float64(steps-1)), nil
	}
	plain, err := each(301, "some", "empty")
	if err != nil {
		return nil, err
	}
	big, err := each(301, "some", "5 MB")
	if err != nil {
		return nil, err
	}
	long, err := each(10_000, "many", "empty")
	return []row{
		{work: "a no-op step beside 5 MB of metadata", ours: big, limit: plain, what: "(beside none)", target: "does not grow"},
		{work: "a no-op step of 10,000", ours: long, limit: plain, what: "(of 300)", target: "does not grow"},
	}, err
}

// manyRuns runs 10,000 short runs, 8 at once.
func (b *bench) manyRuns(ctx context.Context) ([]row, error) {
	env, err := b.stored(ctx, map[string][]step{"short": noopSteps(1)})
	if err != nil {
		return nil, err
	}
	const n = 10_000
	u, err := command(ctx, env, b.program, "task", "run", "--id", "short", "--k", strconv.Itoa(n), "-j", "8", "--output-dir", filepath.Join(b.dir, "runs"))
	return []row{
		{work: "10,000 short runs, 8 at once, memory", ours: measure{value: u.rss, unit: "MiB"}, target: "under 500 MB"},
		{work: "one of them", ours: seconds(u.wall / n)},
	}, err
}

// waitingRuns lets 2,000 runs wait for a person.
func (b *bench) waitingRuns(ctx context.Context) ([]row, error) {
	const n, watched = 2_000, 10 * time.Second
	env, err := b.stored(ctx, map[string][]step{"wait": {{"id": "ask", "type": "review"}}})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, b.program, "task", "run", "--id", "wait", "--k", strconv.Itoa(n), "-j", strconv.Itoa(n), "--output-dir", filepath.Join(b.dir, "waiting"))
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, time.Minute
	ended, held := make(chan struct{}), make(chan float64, 1)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { held <- peak(cmd.Process.Pid, ended) }()
	used, err := b.watchWaiting(ctx, env, cmd.Process.Pid, n, watched)
	_ = cmd.Process.Signal(os.Interrupt)
	stopped := cmd.Wait()
	close(ended)
	rss := <-held
	var exit *exec.ExitError
	if err == nil && (!errors.As(stopped, &exit) || exit.ExitCode() != 130) {
		err = fmt.Errorf("stopped by Ctrl-C, it ended with %w", stopped)
	}
	return []row{
		{work: "2,000 runs that wait, memory", ours: measure{value: rss, unit: "MiB"}, target: "under 1 GiB"},
		{work: "2,000 runs that wait, of one core", ours: measure{value: 100 * used.Seconds() / watched.Seconds(), unit: "%"}, target: "next to nothing"},
	}, err
}

// watchWaiting waits until so many runs wait, and returns what processor time the process takes from then on.
func (b *bench) watchWaiting(ctx context.Context, env []string, pid, n int, watched time.Duration) (time.Duration, error) {
	for waiting := 0; waiting < n; {
		u, err := command(ctx, env, b.program, "review", "list", "--json")
		if err != nil {
			return 0, err
		}
		d, err := doc.ParseObject(u.out, doc.Options{})
		if err != nil {
			return 0, err
		}
		if waiting = len(d.Arr("reviews")); waiting < n {
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
	before, err := processorTime(pid)
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(watched):
	}
	after, err := processorTime(pid)
	return after - before, err
}

// processorTime returns what a process has used so far, from its clock.
func processorTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	const user, system, ticks = 11, 12, 100
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat reads %q", pid, stat)
	}
	u, err1 := strconv.Atoi(fields[user])
	s, err2 := strconv.Atoi(fields[system])
	return time.Duration(u+s) * time.Second / ticks, errors.Join(err1, err2)
}

// manyWriters has 8 processes commit to one state folder at once.
func (b *bench) manyWriters(ctx context.Context) ([]row, error) {
	const n = 8
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(b.dir, "shared", "documents.db")
	longest := make([]float64, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			u, err := command(ctx, nil, self, "-writer", file)
			if err == nil {
				longest[i], err = strconv.ParseFloat(strings.TrimSpace(string(u.out)), 64)
			}
			errs[i] = err
		})
	}
	all.Wait()
	most := 0.0
	for _, l := range longest {
		most = max(most, l)
	}
	return []row{{work: "8 processes commit, the longest wait", ours: seconds(most), target: "under 1 s"}}, errors.Join(errs...)
}

// writeCommits commits to a database for 5 s without a pause and prints the seconds that the longest commit took.
func writeCommits(ctx context.Context, file string) error {
	s, err := sqlite.New(sqlite.Options{Path: file})
	if err != nil {
		return err
	}
	defer s.Close()
	var longest time.Duration
	pid := doc.Int(int64(syscall.Getpid()))
	for began, i := time.Now(), 0; time.Since(began) < 5*time.Second; i++ {
		start := time.Now()
		if err := s.Insert(ctx, "rows", doc.Of("by", pid, "n", doc.Int(int64(i)))); err != nil {
			return err
		}
		longest = max(longest, time.Since(start))
	}
	fmt.Println(longest.Seconds())
	return nil
}
