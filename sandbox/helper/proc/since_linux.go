package proc

import (
	"bytes"
	"runtime"
	"strconv"
	"time"
)

// forksPerCore is more processes than a core can start in a second.
const forksPerCore = 20_000

// Moment is a point in the order in which processes of this PID namespace get their numbers. The zero value is before all of them.
type Moment struct {
	last int // the number given last
	at   time.Time
	most int // numbers there are
}

// Now returns this moment.
func Now() Moment {
	most, _ := strconv.Atoi(string(bytes.TrimSpace(read("/proc/sys/kernel/pid_max", nil))))
	return Moment{lastPID(), time.Now(), most}
}

func lastPID() int {
	f := bytes.Fields(read("/proc/loadavg", nil))
	if len(f) < 5 {
		return 0
	}
	n, _ := strconv.Atoi(string(f[4]))
	return n
}

// MarkedSince is Marked for processes that began after a moment. Soon after it that is quicker: numbers are given in turn, so only few are looked at.
func MarkedSince(m Moment, entry string) []Process {
	now := lastPID()
	turned := time.Duration(m.most-1000) * time.Second / time.Duration(forksPerCore*runtime.NumCPU()) // before that they cannot have come round
	const many = 2000
	if m.last == 0 || now < m.last || now-m.last > many || time.Since(m.at) > turned {
		return Marked(entry)
	}
	var out []Process
	var buf []byte
	for pid := m.last + 1; pid <= now; pid++ {
		var p Process
		if p, buf = marked(strconv.Itoa(pid), entry, buf); p.PID != 0 {
			out = append(out, p)
		}
	}
	return out
}
