package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"agentenv/bundle"
)

// signals counts the signals that end runs, from before the first run starts until after the last report, with no gap.
type signals struct {
	ch    chan os.Signal
	mu    sync.Mutex
	first os.Signal
}

// watchSignals begins to count; one that the parent set to ignored stays ignored. stop gives the signals back.
func watchSignals() (s *signals, stop func()) {
	s = &signals{ch: make(chan os.Signal, 8)}
	var watched []os.Signal
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			watched = append(watched, sig)
		}
	}
	if len(watched) == 0 {
		return s, func() {}
	}
	signal.Notify(s.ch, watched...)
	return s, func() { signal.Stop(s.ch) }
}

// during runs fn with a context that the first signal ends; the signal then counts as the one that ended the command.
func (s *signals) during(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-done:
		case sig := <-s.ch:
			s.mu.Lock()
			s.first = sig
			s.mu.Unlock()
			cancel(bundle.Cancelling(sig))
		}
	})
	err := fn(ctx)
	close(done)
	watch.Wait()
	return err
}

// code returns 128 plus the number of the signal that came during preparation, 0 when none did.
func (s *signals) code() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return signalCode(s.first)
}

// signalCode is the exit code of a command that a signal ended, 0 for nil.
func signalCode(sig os.Signal) int {
	if s, ok := sig.(syscall.Signal); ok {
		return exitSignal + int(s)
	}
	return 0
}

// reason is what the first signal is recorded as; there must have been one.
func (s *signals) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bundle.Cancelling(s.first).Error()
}

// second runs fn and calls halt when a signal comes meanwhile; it reports whether one came.
func (s *signals) second(halt func(), fn func()) (came bool) {
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-done:
		case <-s.ch:
			came = true
			halt()
		}
	})
	fn()
	close(done)
	watch.Wait()
	return came
}
