package engine

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
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

// This file reaches the files of a stopped container, through the engine's archive API.

// hidden returns an error when p lies where the archive API of a stopped container sees something else than its processes did.
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

// archivePut hands the stream on with the names below the deepest folder that exists, and reads every file back.
func (c *Container) archivePut(ctx context.Context, dir string, in io.Reader) ([]place.Placed, error) {
	dir = clean(dir)
	base, missing := dir, []string(nil)
	for {
		at, e, err := c.lookup(ctx, base, true)
		if err == nil {
			if e.Kind != place.Dir {
				return nil, fault.New(fault.Invalid, "%s in %s is no folder", base, c)
			}
			base = at
			break
		}
		if !fault.Is(err, fault.NotFound) || base == "/" {
			return nil, err
		}
		missing = append([]string{path.Base(base)}, missing...)
		base = path.Dir(base)
	}
	// The engine answers nothing about a container while it unpacks into it, so the stream is made whole first.
	spool, err := os.CreateTemp("", "agentenv-put-")
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "hold the files for %s", c)
	}
	defer os.Remove(spool.Name())
	defer spool.Close()
	var files []string
	err = c.rewrite(spool, in, missing, &files, func(name string) bool {
		_, e, err := c.lookup(ctx, path.Join(dir, name), false)
		return err == nil && e.Kind == place.Dir
	})
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, err
	}
	_, err = c.e.cli.CopyToContainer(ctx, c.info.ID, client.CopyToContainerOptions{DestinationPath: base, Content: spool})
	if err != nil {
		return nil, wrap(ctx, err, "write below %s in %s", dir, c)
	}
	return c.readBack(ctx, dir, files)
}

func (c *Container) rewrite(w io.Writer, in io.Reader, missing []string, files *[]string, isFolder func(string) bool) error {
	tw, tr := tar.NewWriter(w), tar.NewReader(in)
	prefix := strings.Join(missing, "/")
	made := map[string]bool{}
	for i := range missing {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path.Join(missing[:i+1]...) + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	var folder func(name string, mode int64) error
	folder = func(name string, mode int64) error {
		if name == "." || made[name] {
			return nil
		}
		if err := folder(path.Dir(name), 0o755); err != nil {
			return err
		}
		made[name] = true
		if len(missing) == 0 && isFolder(name) {
			return nil
		}
		return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path.Join(prefix, name) + "/", Mode: mode})
	}
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := place.CheckName(strings.TrimSuffix(h.Name, "/")); err != nil {
			return err
		}
		name := path.Clean(h.Name)
		if h.Typeflag == tar.TypeDir {
			if err := folder(name, h.Mode&0o777); err != nil {
				return err
			}
			continue
		}
		if err := folder(path.Dir(name), 0o755); err != nil {
			return err
		}
		out := &tar.Header{Typeflag: h.Typeflag, Name: path.Join(prefix, name), Linkname: h.Linkname, Mode: h.Mode & 0o777, Size: h.Size, ModTime: h.ModTime}
		switch h.Typeflag {
		case tar.TypeReg:
			*files = append(*files, name)
		case tar.TypeSymlink:
		default:
			return fault.New(fault.Unsupported, "%s: only files, folders and symlinks can be written", name)
		}
		if err := tw.WriteHeader(out); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return err
		}
	}
	return tw.Close()
}

func (c *Container) readBack(ctx context.Context, dir string, files []string) ([]place.Placed, error) {
	if len(files) == 0 {
		return nil, nil
	}
	var roots []string
	for _, f := range files {
		roots = append(roots, path.Join(dir, f))
	}
	g := c.archiveGet(ctx, place.GetRequest{Roots: roots})
	defer g.Close()
	var out []place.Placed
	for {
		e, err := g.Next()
		if err == io.EOF {
			return out, nil
		}
		if err == nil {
			err = e.Err
		}
		h := sha256.New()
		if err == nil {
			_, err = io.Copy(h, g)
		}
		if err != nil {
			return nil, fault.At(err, "read back below %s in %s", dir, c)
		}
		out = append(out, place.Placed{Name: files[e.Root], Size: e.Size, SHA256: hex.EncodeToString(h.Sum(nil))})
	}
}

func (c *Container) archiveWalk(ctx context.Context, root string, hash bool, yield func(place.Entry, error) bool) {
	g := c.archiveGet(ctx, place.GetRequest{Roots: []string{root}, Follow: true})
	defer g.Close()
	for {
		e, err := g.Next()
		if err == io.EOF {
			return
		}
		if err == nil && e.Name == "" {
			switch {
			case e.Err != nil:
				err = e.Err
			case e.Kind != place.Dir:
				err = fault.New(fault.Invalid, "%s in %s is no folder", root, c)
			default:
				continue
			}
		}
		if err != nil {
			yield(place.Entry{}, err)
			return
		}
		if hash && e.Kind == place.File && e.Err == nil {
			h := sha256.New()
			if _, err := io.Copy(h, g); err != nil {
				e.Err = err
			} else {
				e.SHA256 = hex.EncodeToString(h.Sum(nil))
			}
		}
		if !yield(e, nil) {
			return
		}
	}
}

func (c *Container) archiveGet(ctx context.Context, req place.GetRequest) place.Tree {
	return &archive{ctx: ctx, c: c, req: req, root: -1}
}

// archive reads one archive a root.
type archive struct {
	ctx  context.Context
	c    *Container
	req  place.GetRequest
	root int
	src  io.ReadCloser
	tr   *tar.Reader
	top  string
	left int64
	skip string
	fail error
	done bool
}

// Next goes to the next entry; see place.Tree.
func (a *archive) Next() (place.Entry, error) {
	a.left, a.fail = 0, io.EOF
	for {
		if a.done {
			return place.Entry{}, io.EOF
		}
		if a.tr == nil {
			if a.root++; a.root >= len(a.req.Roots) {
				a.done = true
				continue
			}
			if e, err := a.open(); err != nil || e.Err != nil {
				return e, err
			}
		}
		h, err := a.tr.Next()
		if err == io.EOF {
			a.src.Close()
			a.tr, a.src = nil, nil
			continue
		}
		if err != nil {
			a.done = true
			return place.Entry{}, wrap(a.ctx, err, "read %s in %s", a.req.Roots[a.root], a.c)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if a.top == "" {
			a.top = name
		}
		name = strings.TrimPrefix(strings.TrimPrefix(name, a.top), "/")
		if a.skip != "" && strings.HasPrefix(name, a.skip+"/") {
			continue
		}
		if a.req.Skip != nil && a.req.Skip(a.req.Roots[a.root], name) {
			if h.Typeflag == tar.TypeDir {
				a.skip = name
				if name == "" {
					a.src.Close()
					a.tr, a.src = nil, nil
				}
			}
			continue
		}
		return a.entry(h, name), nil
	}
}

func (a *archive) open() (place.Entry, error) {
	a.top, a.skip = "", ""
	p, _, err := a.c.lookup(a.ctx, a.req.Roots[a.root], a.req.Follow)
	if err == nil {
		var r client.CopyFromContainerResult
		r, err = a.c.e.cli.CopyFromContainer(a.ctx, a.c.info.ID, client.CopyFromContainerOptions{SourcePath: p})
		if err == nil {
			a.src, a.tr = r.Content, tar.NewReader(r.Content)
			return place.Entry{}, nil
		}
		err = wrap(a.ctx, err, "read %s in %s", p, a.c)
	}
	if a.ctx.Err() != nil {
		a.done = true
		return place.Entry{}, err
	}
	return place.Entry{Root: a.root, Err: err}, nil
}

func (a *archive) entry(h *tar.Header, name string) place.Entry {
	m := h.FileInfo().Mode()
	e := place.Entry{Root: a.root, Name: name, Mode: m &^ fs.ModeType, UID: h.Uid, GID: h.Gid}
	switch h.Typeflag {
	case tar.TypeReg:
		e.Kind, e.Size = place.File, h.Size
		a.left, a.fail = h.Size, nil
	case tar.TypeDir:
		e.Kind = place.Dir
	case tar.TypeSymlink:
		e.Kind, e.Link = place.Symlink, h.Linkname
	case tar.TypeLink: // a second name of a file that the stream brought already
		e.Kind = place.File
		e.Err = fault.New(fault.Unsupported, "is a second name of the file %s; a stopped container gives such a file once", h.Linkname)
	default:
		e.Kind = place.Other
	}
	return e
}

// Read reads the body of the current entry.
func (a *archive) Read(p []byte) (int, error) {
	if a.fail != nil {
		return 0, a.fail
	}
	n, err := a.tr.Read(p)
	a.left -= int64(n)
	if err == io.EOF && a.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		err = wrap(a.ctx, err, "read %s in %s", a.req.Roots[a.root], a.c)
	}
	a.fail = err
	return n, err
}

// Close ends the stream.
func (a *archive) Close() error {
	a.done = true
	if a.src != nil {
		a.src.Close()
	}
	return nil
}
