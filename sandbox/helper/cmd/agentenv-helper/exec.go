//go:build linux

package main

import (
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentenv/sandbox/helper/proc"
	"agentenv/sandbox/helper/wire"
)

const (
	setSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	patience     = 5 * time.Second
	deadGrace    = 2 * time.Second // what a command gets whose client is gone
)

// execute runs a command in a session of its own. This process is the subreaper, so that whatever the command starts stays
// below it, whatever session it moves to, and can be ended.
func execute(q wire.Request, in *wire.Reader, out *wire.Writer) error {
	signals := adopt()
	env := environment(q)
	program, argv, shell, err := command(q, env)
	if err != nil {
		return err
	}
	var ends [6]*os.File // read and write ends of stdin, stdout, stderr
	for i := 0; i < 6; i += 2 {
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			return err
		}
	}
	pid, err := syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{blocking(ends[0]), blocking(ends[3]), blocking(ends[5])},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return &wire.Failure{Kind: wire.KindOf(err), Msg: "cannot run " + program + ": " + err.Error()}
	}
	ends[0].Close()
	ends[3].Close()
	ends[5].Close()
	if err := out.SendJSON(wire.Begun, wire.Start{PID: os.Getpid(), Shell: shell}); err != nil {
		return err
	}

	kills := make(chan time.Duration, 4)
	go control(in, ends[1], kills)
	var pumps sync.WaitGroup
	open := make([]bool, 2)
	for i, t := range []wire.Type{wire.Out, wire.Err} {
		r := ends[2+2*i]
		pumps.Go(func() { open[i] = pump(r, t, out) })
	}
	code, left, _ := supervise(pid, signals, kills)
	now := time.Now()
	ends[2].SetReadDeadline(now)
	ends[4].SetReadDeadline(now)
	pumps.Wait()
	for i, t := range []wire.Type{wire.Out, wire.Err} {
		if open[i] {
			open[i] = rest(ends[2+2*i], t, out)
		}
	}
	background := open[0] || open[1]
	if background && len(left) == 0 {
		keepReading(ends[2], ends[4])
	}
	if err := out.SendJSON(wire.Exit, wire.ExitStatus{Code: code, Background: background, Left: len(left)}); err != nil {
		return err
	}
	// What this user may not end stays below this process, where a helper run as root finds it.
	for until := time.Now().Add(2 * patience); len(left) > 0 && time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		reap(pid, new(int))
		left = below()
	}
	return nil
}

// adopt makes this process the one that whatever descends from it is left to, and returns a channel that tells of ended
// children, and of more. Signals that would end this process are caught, not ignored: what is ignored stays so in the command.
func adopt(more ...os.Signal) <-chan os.Signal {
	syscall.RawSyscall(syscall.SYS_PRCTL, setSubreaper, 1, 0)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, append(more, syscall.SIGCHLD, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)...)
	return signals
}

// below returns what lives below this process.
func below() []proc.Process { return proc.Below(proc.All(), os.Getpid()) }

// supervise waits for the command pid. When kills gives a grace, or SIGTERM comes, everything below this process is ended, and
// those that could not be are returned; asked tells that SIGTERM came.
func supervise(pid int, signals <-chan os.Signal, kills <-chan time.Duration) (code int, left []proc.Process, asked bool) {
	var ended chan []proc.Process
	end := func(grace time.Duration) {
		if ended == nil {
			c := make(chan []proc.Process, 1)
			ended = c
			go func() { c <- proc.End(below, grace, patience) }()
		}
	}
	for done := false; !done; {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				asked = true
				end(deadGrace)
			}
			done = reap(pid, &code)
		case grace := <-kills:
			end(grace)
		case left = <-ended:
			ended, done = nil, len(left) > 0
		}
	}
	for more := true; more; { // it may have come together with the command's end
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				asked = true
				end(deadGrace)
			}
		default:
			more = false
		}
	}
	if ended != nil { // the command is gone, what it started may not be
		for wait := true; wait; {
			select {
			case left = <-ended:
				wait = false
			case <-signals:
				reap(pid, new(int))
			}
		}
	}
	return code, left, asked
}

// blocking returns f's descriptor in blocking mode, as programs expect theirs.
func blocking(f *os.File) uintptr { return f.Fd() }

func environment(q wire.Request) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if _, set := q.Env[name]; !set && name != wire.MarkName {
			env = append(env, kv)
		}
	}
	for k, v := range q.Env {
		env = append(env, k+"="+string(v))
	}
	return append(env, wire.MarkName+"="+q.Mark)
}

func command(q wire.Request, env []string) (program string, argv []string, shell string, err error) {
	searched := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			searched = v
		}
	}
	if len(q.Argv) > 0 {
		for _, a := range q.Argv {
			argv = append(argv, string(a))
		}
		program, err = find(argv[0], searched)
		return program, argv, "", err
	}
	for _, shell := range []string{"bash", "sh"} {
		if program, err := find(shell, searched+":/usr/local/bin:/usr/bin:/bin"); err == nil {
			return program, []string{shell, "-c", string(q.Script)}, shell, nil
		}
	}
	return "", nil, "", &wire.Failure{Kind: "not found", Msg: "there is no shell (neither bash nor sh)"}
}

// control reads what the client says. A stream that ends without word means that the client died.
func control(in *wire.Reader, stdin *os.File, kills chan<- time.Duration) {
	for {
		t, b, err := in.Next()
		switch {
		case err != nil:
			stdin.Close()
			kills <- deadGrace
			return
		case t == wire.Data:
			stdin.Write(b) // a command that does not read its input loses it
		case t == wire.End:
			stdin.Close()
		case t == wire.Kill:
			var k wire.KillRequest
			json.Unmarshal(b, &k)
			kills <- k.Grace
		}
	}
}

// pump sends what r gives until its deadline, and reports whether r is still open then. When nobody takes the output any
// more it is thrown away, so that the command is not held up until control has ended it.
func pump(r *os.File, t wire.Type, out *wire.Writer) (open bool) {
	buf := make([]byte, 128<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			out.Send(t, buf[:n])
		}
		if err != nil {
			return err != io.EOF
		}
	}
}

// rest sends what is in the pipe now and reports whether something still holds it open.
func rest(r *os.File, t wire.Type, out *wire.Writer) (open bool) {
	const most = 1 << 20 // the largest pipe an unprivileged process can make
	conn, err := r.SyscallConn()
	if err != nil {
		return false
	}
	buf := make([]byte, 128<<10)
	r.SetReadDeadline(time.Time{})
	for sent := 0; sent < most; {
		n := -1
		conn.Control(func(fd uintptr) { n, err = syscall.Read(int(fd), buf) })
		if n <= 0 {
			return n < 0 && err == syscall.EAGAIN
		}
		out.Send(t, buf[:n])
		sent += n
	}
	return true
}

func reap(pid int, code *int) (ended bool) {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || got <= 0 {
			return ended
		}
		if got == pid {
			*code, ended = codeOf(ws), true
		}
	}
}

// keepReading leaves a process that reads a background child's output, which would else die of its first write.
func keepReading(outs ...*os.File) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return
	}
	files := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	for _, f := range outs {
		files = append(files, f.Fd())
	}
	syscall.ForkExec("/proc/self/exe", []string{"agentenv-helper", "drain"}, &syscall.ProcAttr{
		Env: []string{}, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

func drain() {
	var all sync.WaitGroup
	for fd := uintptr(3); fd < 5; fd++ {
		f := os.NewFile(fd, "output")
		all.Go(func() { io.Copy(io.Discard, f) })
	}
	all.Wait()
}

// kill ends, as whoever this process runs as, all that another helper's command started.
func kill(q wire.Request, out *wire.Writer) error {
	left := proc.End(func() []proc.Process {
		seen := map[int]bool{os.Getpid(): true, q.PID: true, 1: true}
		var found []proc.Process
		var below []proc.Process
		if q.PID > 1 {
			below = proc.Below(proc.All(), q.PID)
		}
		for _, p := range append(below, proc.Marked(wire.MarkName+"="+q.Mark)...) {
			if !seen[p.PID] {
				seen[p.PID] = true
				found = append(found, p)
			}
		}
		return found
	}, q.Grace, patience)
	return out.SendJSON(wire.Exit, wire.ExitStatus{Left: len(left)})
}
