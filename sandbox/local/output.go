package local

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"agentenv/sandbox/place"
)

// outputs moves what a command reads and writes. The command's end, not the end of its output, ends the reading.
type outputs struct {
	in, inW    *os.File
	read, give [2]*os.File
	open       [2]bool
	errs       [2]error
	pumps      sync.WaitGroup
	broken     chan struct{}
	once       sync.Once
	sinks      *place.Sinks
}

func newOutputs(cmd *exec.Cmd, stdin io.Reader) (o *outputs, err error) {
	o = &outputs{broken: make(chan struct{})}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	for i := range o.read {
		if o.read[i], o.give[i], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	if stdin != nil {
		if o.in, o.inW, err = os.Pipe(); err != nil {
			return nil, err
		}
		cmd.Stdin = o.in
	}
	cmd.Stdout, cmd.Stderr = o.give[0], o.give[1]
	return o, nil
}

func (o *outputs) started(stdin io.Reader, sinks *place.Sinks) {
	o.sinks = sinks
	o.give[0].Close()
	o.give[1].Close()
	if o.in != nil {
		o.in.Close()
		go func() { // ends with its reader, or at the first write after the command ended
			_, _ = io.Copy(o.inW, stdin)
			o.inW.Close()
		}()
	}
	for i := range o.read {
		o.pumps.Go(func() { o.pump(i) })
	}
}

func (o *outputs) sink(i int, p []byte) error {
	if i == 0 {
		return o.sinks.Out(p)
	}
	return o.sinks.Err(p)
}

func (o *outputs) pump(i int) {
	var buf []byte
	for n := 0; ; {
		var err error
		buf = roomier(buf, n)
		n, err = o.read[i].Read(buf)
		if n > 0 && o.errs[i] == nil {
			if o.errs[i] = o.sink(i, buf[:n]); o.errs[i] != nil {
				o.once.Do(func() { close(o.broken) })
			}
		}
		if err != nil {
			o.open[i] = errors.Is(err, os.ErrDeadlineExceeded)
			return
		}
	}
}

// roomier returns the memory for the next read after one that took n bytes: most commands say little.
func roomier(buf []byte, n int) []byte {
	switch {
	case len(buf) == 0:
		return make([]byte, 2<<10)
	case n == len(buf) && n < 64<<10:
		return make([]byte, 64<<10)
	}
	return buf
}

// finish takes what is left in the pipes and reports whether something still holds them open, and a sink's error.
func (o *outputs) finish() (open bool, err error) {
	now := time.Now()
	for i := range o.read {
		o.read[i].SetReadDeadline(now)
	}
	o.pumps.Wait()
	const most = 1 << 20 // the largest pipe an unprivileged process can make
	var buf []byte
	for i := range o.read {
		err = errors.Join(err, o.errs[i])
		conn, e := o.read[i].SyscallConn()
		if !o.open[i] || e != nil {
			continue
		}
		for got, n := 0, 0; got < most; {
			buf = roomier(buf, n)
			n = -1
			_ = conn.Control(func(fd uintptr) { n, e = unix.Read(int(fd), buf) })
			if n <= 0 {
				o.open[i] = n < 0 && errors.Is(e, unix.EAGAIN)
				break
			}
			got += n
			if e := o.sink(i, buf[:n]); e != nil {
				err = errors.Join(err, e)
				break
			}
		}
		open = open || o.open[i]
	}
	return open, err
}

func (o *outputs) close() {
	for _, f := range []*os.File{o.in, o.inW, o.read[0], o.read[1], o.give[0], o.give[1]} {
		if f != nil {
			f.Close()
		}
	}
}
