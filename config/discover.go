package config

import (
	"io"
	"os"
	"path/filepath"
	"syscall"

	"agentenv/fault"
)

const (
	fileVar     = "AGENT_ENV_CONFIG"
	maxFileSize = 8 << 20
)

// found is what the search for the config file came to.
type found struct {
	path   string // as the variable or the walk names it; "" for none
	open   string // the same, to open
	source string // "env", "walk-up", "none" or "error"
	err    error
}

// candidate is a place where the config file may be.
type candidate struct {
	path, open string
	why        string
}

// candidates lists where the config file is looked for, first one first: the variable's path alone, else the folders from
// real (the working folder without symlinks) up to the root.
func candidates(env Env, dir, real string) []candidate {
	if p, _ := env(fileVar); p != "" {
		open := p
		if !filepath.IsAbs(p) {
			open = filepath.Join(dir, p)
		}
		return []candidate{{p, open, "$" + fileVar}}
	}
	var out []candidate
	for at := real; ; at = filepath.Dir(at) {
		p := filepath.Join(at, ".agentenv", "config.toml")
		out = append(out, candidate{p, p, "walk-up"})
		if at == filepath.Dir(at) {
			return out
		}
	}
}

func (c candidate) exists() bool {
	info, err := os.Stat(c.open)
	return err == nil && !info.IsDir()
}

func discover(env Env, dir, real string) found {
	list := candidates(env, dir, real)
	for _, c := range list {
		if c.exists() {
			source := "walk-up"
			if c.why != source {
				source = "env"
			}
			return found{path: c.path, open: c.open, source: source}
		}
	}
	if c := list[0]; c.why != "walk-up" {
		return found{source: "error", err: invalid("%s=%q names no existing file; set it to the path of a config.toml, or unset it", fileVar, c.path)}
	}
	return found{source: "none"}
}

// readBytes reads a small regular file; it never waits on a pipe or a device.
func readBytes(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fault.Reason(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fault.Reason(err)
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, fault.Reason(err)
	}
	if len(text) > maxFileSize {
		return nil, fault.New(fault.Invalid, "larger than %d MiB", maxFileSize>>20)
	}
	return text, nil
}
