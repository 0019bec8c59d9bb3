package engine

import (
	"context"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/sandbox/place"
)

// archive*.go reach the files of a container without the helper, through the engine's archive API: of one that is stopped, or
// that the helper cannot be brought into.

// hidden returns an error when p lies where the archive API sees something else than the container's processes do or did.
func (c *Container) hidden(p string) error {
	p = clean(p)
	var gone []string
	for target := range c.info.HostConfig.Tmpfs {
		gone = append(gone, target)
	}
	for _, m := range c.info.HostConfig.Mounts {
		if m.Type == mount.TypeTmpfs {
			gone = append(gone, m.Target)
		}
	}
	for _, target := range append(gone, "/dev", "/proc", "/sys") {
		target = clean(target)
		if p == target || strings.HasPrefix(p, target+"/") {
			if c.Running() {
				return fault.New(fault.Unsupported, "%s is on %s, which only the processes in %s see, and the helper cannot be brought in there", p, target, c)
			}
			return fault.New(fault.Unavailable, "%s is on %s, which exists only while %s runs, and that is stopped", p, target, c)
		}
	}
	return nil
}

// lookup resolves p: what is there, and where when p is a link and follow is set.
func (c *Container) lookup(ctx context.Context, p string, follow bool) (string, place.Entry, error) {
	for range 40 {
		if err := c.hidden(p); err != nil {
			return "", place.Entry{}, err
		}
		r, err := c.e.cli.ContainerStatPath(ctx, c.info.ID, client.ContainerStatPathOptions{Path: p})
		if err != nil {
			if errdefs.IsNotFound(err) && ctx.Err() == nil {
				return "", place.Entry{}, fault.New(fault.NotFound, "%s in %s: no such file or directory", p, c)
			}
			return "", place.Entry{}, wrap(ctx, err, "%s in %s", p, c)
		}
		e := place.Entry{Size: r.Stat.Size, Mode: r.Stat.Mode &^ fs.ModeType, Link: r.Stat.LinkTarget, Kind: kindOf(r.Stat.Mode)}
		if e.Kind != place.File {
			e.Size = 0
		}
		if e.Kind != place.Symlink || !follow {
			return p, e, nil
		}
		to := r.Stat.LinkTarget
		if !strings.HasPrefix(to, "/") {
			to = path.Join(path.Dir(clean(p)), to)
		}
		if to == p {
			break
		}
		p = to
	}
	return "", place.Entry{}, fault.New(fault.Invalid, "%s in %s: too many links", p, c)
}

func kindOf(m os.FileMode) place.Kind {
	switch {
	case m.IsRegular():
		return place.File
	case m.IsDir():
		return place.Dir
	case m&fs.ModeSymlink != 0:
		return place.Symlink
	}
	return place.Other
}

func (c *Container) archiveStat(ctx context.Context, p string, follow bool) (place.Entry, error) {
	_, e, err := c.lookup(ctx, p, follow)
	return e, err
}

func (c *Container) archiveLook(ctx context.Context, names []string) (string, error) {
	search := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, kv := range c.info.Config.Env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	for _, n := range names {
		for dir := range strings.SplitSeq(search, ":") {
			p := path.Join("/", dir, n)
			_, e, err := c.lookup(ctx, p, true)
			if err == nil && e.Kind == place.File && e.Mode&0o111 != 0 {
				return p, nil
			}
			if err != nil && !fault.Is(err, fault.NotFound, fault.Unavailable) || ctx.Err() != nil {
				return "", err
			}
		}
	}
	return "", fault.New(fault.NotFound, "there is no %s on PATH of %s", strings.Join(names, " and no "), c)
}
