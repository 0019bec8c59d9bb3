package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"agentenv/sandbox/helper/proc"
)

// bound is a command in a cgroup of its own.
type bound struct {
	*direct
	group string
}

// start starts a command in a cgroup of its own. After any error it has not been started; why a command cannot be run, the next way
// tells better.
func (c *cgroups) start(id string, cmd *exec.Cmd, mark string) (process, error) {
	dir := c.own()
	if dir == "" {
		return nil, errors.New("commands get no cgroups")
	}
	group := filepath.Join(dir, fmt.Sprintf("%s.%d", id, c.last.Add(1)))
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, err
	}
	own := *cmd
	if err := startIn(&own, group); err != nil {
		_ = proc.RemoveCgroup(group)
		return nil, err
	}
	return &bound{direct: &direct{cmd: &own, mark: mark}, group: group}, nil
}

func (b *bound) wait() (code, left int, err error) {
	code, left, err = b.direct.wait()
	switch gone := syscall.Rmdir(b.group); {
	case gone == nil:
	case errors.Is(gone, syscall.ENOENT) || exists(filepath.Join(b.group, proc.Ended)):
		err = errors.New("the command was ended from outside")
	default:
		_ = os.Mkdir(filepath.Join(b.group, proc.LeftBehind), 0o755)
	}
	return code, left, err
}

func (b *bound) end(grace time.Duration) (left int) {
	left = len(proc.EndIn([]string{b.group}, treeOf(b.cmd.Process.Pid, b.mark), grace, killPatience))
	_ = proc.RemoveCgroup(b.group)
	return left
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
