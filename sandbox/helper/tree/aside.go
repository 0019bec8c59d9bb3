package tree

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"agentenv/sandbox/helper/wire"
)

// Aside is a file that something else writes, past this process, before it takes its name.
type Aside struct {
	u         *unpacker
	tmp, name string
	path      string
}

// Begin prepares a file that will be name below dir, with the same rules as Unpack: an empty file under a name of its own is
// made next to it. Drop or Finish must follow.
func Begin(dir, name string) (*Aside, error) {
	if err := mkdirAll(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	a := &Aside{u: newUnpacker(dir, root)}
	if err := a.begin(name); err != nil {
		root.Close()
		return nil, err
	}
	return a, nil
}

func (a *Aside) begin(name string) (err error) {
	if a.name, err = a.u.inside(name); err != nil {
		return err
	}
	if err := a.u.folder(path.Dir(a.name), 0o755); err != nil {
		return a.u.failed(a.name, err)
	}
	a.tmp = a.u.temp(a.name)
	f, err := a.u.root.OpenFile(a.tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return a.u.failed(a.name, err)
	}
	f.Close()
	real, err := filepath.EvalSymlinks(a.u.dir)
	if err == nil {
		a.path = path.Join(real, a.tmp)
	}
	return err
}

// Offer says where the content has to go, with no link on the way to it; nowhere when that does not lie on the filesystem of /, which
// is what the other side reaches for sure.
func (a *Aside) Offer() wire.Offer {
	fi, err := a.u.root.Lstat(a.tmp)
	if err != nil {
		return wire.Offer{}
	}
	return offer(a.path, fi)
}

// Finish gives the file its owner, mode and name, and returns it as it was read back.
func (a *Aside) Finish(perm fs.FileMode) (wire.Entry, error) {
	defer a.u.root.Close()
	f, err := a.u.root.OpenFile(a.tmp, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err == nil && os.Geteuid() == 0 {
		err = f.Chown(0, 0)
	}
	if err == nil {
		err = f.Chmod(perm.Perm())
	}
	if f != nil {
		f.Close()
	}
	if err == nil {
		err = a.u.place(a.tmp, a.name)
	}
	if err != nil {
		a.u.root.Remove(a.tmp)
		return wire.Entry{}, a.u.failed(a.name, err)
	}
	a.u.files = []string{a.name}
	list, err := a.u.readBack()
	if err != nil {
		return wire.Entry{}, err
	}
	return list[0], nil
}

// Drop removes what was written, also what a writer that is being stopped makes anew for a moment.
func (a *Aside) Drop() {
	defer a.u.root.Close()
	for range 5 {
		a.u.root.Remove(a.tmp)
		time.Sleep(100 * time.Millisecond)
	}
	a.u.root.Remove(a.tmp)
}

// Offer says where the body's file can be read past this process; nowhere when that does not lie on the filesystem of /.
func (b *Body) Offer() wire.Offer {
	if b.held != nil {
		return wire.Offer{}
	}
	fi, err := b.f.Stat()
	if err != nil {
		return wire.Offer{}
	}
	return offer(b.f.Name(), fi)
}

func offer(path string, fi fs.FileInfo) wire.Offer {
	var root syscall.Stat_t
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || syscall.Lstat("/", &root) != nil || root.Dev != st.Dev {
		return wire.Offer{}
	}
	return wire.Offer{Path: path, Dev: uint64(st.Dev), Ino: st.Ino} //nolint:unconvert // its type differs between systems
}

// Changed returns a wire.Failure of kind conflict when the file is not as it was opened any more.
func (b *Body) Changed() error {
	fi, err := b.f.Stat()
	if err == nil && (fi.Size() != b.Size || !fi.ModTime().Equal(b.at)) {
		err = &wire.Failure{Kind: "conflict", Msg: "changed while it was read"}
	}
	return err
}
