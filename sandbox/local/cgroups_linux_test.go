package local

import (
	"path/filepath"
	"strings"
	"testing"
)

const hybrid = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw
`

func TestCgroupOf(t *testing.T) {
	const v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
	for name, c := range map[string]struct{ mounts, groups, want string }{
		"of a session":                      {v2, "0::/user.slice/user-1000.slice/session-3.scope\n", "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope"},
		"the topmost":                       {v2, "0::/\n", "/sys/fs/cgroup"},
		"beside version 1":                  {hybrid, "9:name=systemd:/x\n4:memory:/y\n0::/z\n", "/sys/fs/cgroup/unified/z"},
		"a mount of a part":                 {"30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/docker/abc/box\n", "/sys/fs/cgroup/box"},
		"a mount of another part":           {"30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/docker/abcd\n", ""},
		"outside of its namespace":          {v2, "0::/../other\n", ""},
		"version 1 only":                    {strings.Split(hybrid, "41 ")[0], "4:memory:/y\n", ""},
		"no version 2 cgroup":               {v2, "4:memory:/y\n", ""},
		"a mount point with odd characters": {`30 23 0:26 / /sys/fs\040x rw - cgroup2 cgroup rw`, "0::/\n", ""},
	} {
		if got, err := cgroupOf(c.mounts, c.groups); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func FuzzCgroupOf(f *testing.F) {
	f.Add(hybrid, "0::/z\n")
	f.Add("1 2 3 4 5 6 -", "0::/")
	f.Fuzz(func(t *testing.T, mounts, groups string) {
		if dir, err := cgroupOf(mounts, groups); err == nil && dir != filepath.Clean(dir) {
			t.Errorf("%q", dir)
		}
	})
}
