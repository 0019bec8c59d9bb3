package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/task"
)

// contexts is the folder that the final contexts of runs are written to, without secrets; a nil one takes nothing. It is used by one goroutine.
type contexts struct {
	dir   string
	fresh string // base of the name of a folder to make when the first context comes; "" = dir is there
	lost  []string
}

// openContexts takes a folder, made when it is not there, or, for "", a new folder for temporary files that is named for the task and
// for what runs it (run, batch).
func openContexts(dir, taskID, what string) (*contexts, error) {
	if dir == "" {
		return &contexts{fresh: "taskid=" + fileSafe(taskID) + "-" + what}, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fault.Wrap(fault.KindOf(err), fault.Reason(err), "--output-dir: the folder %s cannot be made", dir)
	}
	probe, err := os.CreateTemp(dir, ".agent-env-*")
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), fault.Reason(err), "--output-dir: nothing can be written into the folder %s", dir)
	}
	return &contexts{dir: dir}, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// fileSafe is an id as part of the name of a file.
func fileSafe(id string) string { return strings.ReplaceAll(store.FSSafe(id), "/", "-") }

func hexOf(n int) string {
	b := make([]byte, (n+1)/2)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)[:n]
}

// write writes the recorded context of a run and names the file in its ending.
func (c *contexts) write(s *Services, l *launch, end *ending) {
	if c == nil {
		return
	}
	file, err := c.export(s, l)
	if err != nil {
		c.lost = append(c.lost, l.tag+"the task context could not be written: "+err.Error())
		return
	}
	end.file = file
}

func (c *contexts) export(s *Services, l *launch) (string, error) {
	in, err := s.Instances.Get(context.Background(), l.Instance)
	if err != nil {
		return "", err
	}
	text, err := doc.MarshalIndent(task.Shown(in.Context))
	if err != nil {
		return "", err
	}
	if c.fresh != "" {
		if c.dir, err = freshFolder(c.fresh); err != nil {
			return "", err
		}
		c.fresh = ""
	}
	file := filepath.Join(c.dir, l.file+"_"+hexOf(8)+".json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", fault.Wrap(fault.KindOf(err), fault.Reason(err), "%s", file)
	}
	return file, nil
}

// freshFolder makes a folder of this user's own; one that somebody else made is never taken.
func freshFolder(base string) (string, error) {
	for {
		dir := filepath.Join(os.TempDir(), base+hexOf(6))
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", fault.Wrap(fault.KindOf(err), fault.Reason(err), "the folder %s cannot be made", dir)
		}
	}
}
