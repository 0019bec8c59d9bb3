//go:build integration

package docker_test

import (
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"agentenv/sandbox"
	"agentenv/sandbox/docker"
	"agentenv/sandbox/engine"
	"agentenv/sandbox/local"
	"agentenv/sandbox/sandboxtest/images"
)

// BenchmarkAgainstDockerRun alternates one sandbox (or 20 at once) of each provider with as many docker run --rm, and prints the ratio of
// their medians. Each sandbox gets a provider and an engine connection of its own, as in a process of its own.
func BenchmarkAgainstDockerRun(b *testing.B) {
	e, err := engine.Open(b.Context(), engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	ref, err := images.BusyBox(b.Context(), e)
	if err != nil {
		b.Fatal(err)
	}
	state, root := b.TempDir(), b.TempDir()
	providers := map[string]func(*engine.Lazy) sandbox.Provider{
		"docker": func(l *engine.Lazy) sandbox.Provider { return docker.New(docker.Options{Engine: l}) },
		"local": func(l *engine.Lazy) sandbox.Provider {
			p, err := local.New(local.Options{Root: root, StateRoot: state, Engine: l})
			if err != nil {
				b.Fatal(err)
			}
			return p
		},
	}
	for name, provider := range providers {
		for count, label := range map[int]string{1: "one", 20: "20 at once"} {
			b.Run(name+"/"+label, func(b *testing.B) {
				var ours, theirs []time.Duration
				for b.Loop() {
					began := time.Now()
					lazy := &engine.Lazy{}
					p := provider(lazy)
					at(count, func() {
						id := p.NewID()
						s := sandbox.Spec{Mode: sandbox.Container, Image: ref, Port: 8000}
						err := p.Prepare(b.Context(), s, nil)
						if err == nil {
							_, err = p.Create(b.Context(), id, s)
						}
						if err == nil {
							err = p.Terminate(b.Context(), id)
						}
						if err != nil {
							b.Error(err)
						}
					})
					lazy.Close()
					ours = append(ours, time.Since(began))
					began = time.Now()
					at(count, func() {
						if out, err := exec.Command("docker", "run", "--rm", ref, "true").CombinedOutput(); err != nil {
							b.Errorf("%v: %s", err, out)
						}
					})
					theirs = append(theirs, time.Since(began))
				}
				slices.Sort(ours)
				slices.Sort(theirs)
				b.ReportMetric(ours[len(ours)/2].Seconds()/theirs[len(theirs)/2].Seconds(), "ratio")
				b.ReportMetric(ours[len(ours)/2].Seconds(), "ours-s")
				b.ReportMetric(theirs[len(theirs)/2].Seconds(), "docker-s")
			})
		}
	}
}

func at(n int, f func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(f)
	}
	all.Wait()
}
