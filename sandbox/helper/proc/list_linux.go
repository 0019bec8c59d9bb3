package proc

import (
	"bytes"
	"os"
	"strconv"
)

// All returns every process of this PID namespace that has not ended (zombies have).
func All() []Process {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := d.Readdirnames(-1)
	d.Close()
	var out []Process
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + n + "/stat")
		if err != nil {
			continue
		}
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) < 20 || f[0][0] == 'Z' || f[0][0] == 'X' {
			continue
		}
		ppid, _ := strconv.Atoi(string(f[1]))
		out = append(out, Process{PID: pid, PPID: ppid, Start: string(f[19])})
	}
	return out
}

// Marked returns those of all whose environment holds the entry "NAME=value" and can be read by this process.
func Marked(all []Process, entry string) []Process {
	var out []Process
	for _, p := range all {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/environ")
		if err != nil {
			continue
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if string(v) == entry {
				out = append(out, p)
				break
			}
		}
	}
	return out
}
