package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// All returns every process of this PID namespace that has not ended (zombies have).
func All() []Process {
	var out []Process
	var buf []byte
	for _, pid := range pids() {
		var p Process
		if p, buf = look(pid, buf); p.PID != 0 {
			out = append(out, p)
		}
	}
	return out
}

// Marked returns the processes whose environment holds the entry "NAME=value" and can be read by this process.
func Marked(entry string) []Process {
	var out []Process
	var buf []byte
	for _, pid := range pids() {
		var p Process
		if p, buf = marked(pid, entry, buf); p.PID != 0 {
			out = append(out, p)
		}
	}
	return out
}

// marked returns a process whose environment holds an entry, the zero one for any other, and the memory to go on with.
func marked(pid, entry string, buf []byte) (Process, []byte) {
	buf = read("/proc/"+pid+"/environ", buf)
	if !bytes.Contains(buf, []byte(entry)) { // almost always
		return Process{}, buf
	}
	for v := range bytes.SplitSeq(buf, []byte{0}) {
		if string(v) == entry {
			return look(pid, buf)
		}
	}
	return Process{}, buf
}

// Carries reports whether a process's environment can be read and holds an entry that begins with prefix.
func Carries(pid int, prefix string) bool {
	for v := range bytes.SplitSeq(read("/proc/"+strconv.Itoa(pid)+"/environ", nil), []byte{0}) {
		if bytes.HasPrefix(v, []byte(prefix)) {
			return true
		}
	}
	return false
}

// In returns the processes in a cgroup, given by its folder in the version 2 hierarchy, and in those below it. A cgroup that is
// gone holds none.
func In(dir string) []Process {
	var out []Process
	var buf []byte
	for pid := range bytes.FieldsSeq(read(filepath.Join(dir, "cgroup.procs"), nil)) {
		var p Process
		if p, buf = look(string(pid), buf); p.PID != 0 {
			out = append(out, p)
		}
	}
	for _, sub := range Cgroups(dir) {
		out = append(out, In(sub)...)
	}
	return out
}

func pids() []string {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	out := names[:0]
	for _, n := range names {
		if n[0] >= '0' && n[0] <= '9' {
			out = append(out, n)
		}
	}
	return out
}

// look returns a process, the zero one when it has ended, and the memory to go on with.
func look(pid string, buf []byte) (Process, []byte) {
	buf = read("/proc/"+pid+"/stat", buf)
	f := bytes.Fields(buf[bytes.LastIndexByte(buf, ')')+1:])
	if len(f) < 20 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return Process{}, buf
	}
	p := Process{Start: string(f[19])}
	p.PID, _ = strconv.Atoi(pid)
	p.PPID, _ = strconv.Atoi(string(f[1]))
	return p, buf
}

// read returns a file's content in buf, grown as needed; nothing when it cannot be read. A machine has many processes, and
// package os takes three times as many system calls for a file that cannot be polled.
func read(path string, buf []byte) []byte {
	buf = buf[:0]
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return buf
	}
	defer syscall.Close(fd)
	for {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, max(4096, 2*cap(buf))), buf...)
		}
		n, err := syscall.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return buf[:0]
		case n == 0:
			return buf
		default:
			buf = buf[:len(buf)+n]
		}
	}
}
