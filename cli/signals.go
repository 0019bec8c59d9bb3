package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"agentenv/bundle"
)

// signals counts the signals that end runs, from before the first run starts until after the last report, with no gap.
type signals struct {
	ch    chan os.Signal
	mu    sync.Mutex
	first os.Signal
}

// sameSignal is how soon a signal after another one is still the same wish: timeout(1) sends two, a terminal and a shell may as well.
const sameSignal = 300 * time.Millisecond

// watchSignals begins to count; one that the parent set to ignored stays ignored, and one that comes with another counts once. stop gives the
// signals back; a second call is a no-op.
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
	raw, done := make(chan os.Signal, 8), make(chan struct{})
	signal.Notify(raw, watched...)
	var counting sync.WaitGroup
	counting.Go(func() { s.count(raw, done) })
	return s, sync.OnceFunc(func() {
		signal.Stop(raw)
		close(done)
		counting.Wait()
	})
}

// count hands signals on until done.
func (s *signals) count(raw <-chan os.Signal, done <-chan struct{}) {
	var last time.Time
	for {
		select {
		case <-done:
			return
		case sig := <-raw:
			if now := time.Now(); now.Sub(last) >= sameSignal {
				last = now
				select {
				case s.ch <- sig:
				default: // nobody takes them any more, and there are enough
				}
			}
		}
	}
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
