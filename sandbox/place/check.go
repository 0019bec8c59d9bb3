package place

import (
	"io/fs"
	"path"
	"strings"

	"agentenv/fault"
	"agentenv/sandbox/helper/wire"
)

// CheckPath refuses what cannot be a path in a place: one that is not absolute, or holds a NUL byte. Invalid.
func CheckPath(p string) error {
	if !strings.HasPrefix(p, "/") {
		return fault.New(fault.Invalid, "path %q is not absolute; begin it with /", p)
	}
	if strings.ContainsRune(p, 0) {
		return fault.New(fault.Invalid, "path %q holds a NUL byte", p)
	}
	return nil
}

// CheckName refuses a name that is empty, absolute, holds a NUL byte or leads out of the folder it is below (".." counted
// with backslashes as slashes). Invalid.
func CheckName(name string) error {
	slashed := strings.ReplaceAll(name, `\`, "/")
	bad := name == "" || strings.HasPrefix(slashed, "/") || strings.ContainsRune(name, 0) || path.Clean(name) == "."
	for part := range strings.SplitSeq(slashed, "/") {
		bad = bad || part == ".."
	}
	if bad {
		return fault.New(fault.Invalid, "%q is no relative file name that stays below its folder", name)
	}
	return nil
}

// CheckCmd refuses a command that no place can run. Invalid.
func CheckCmd(c Cmd) error {
	switch {
	case len(c.Argv) == 0 && c.Script == "", len(c.Argv) > 0 && c.Argv[0] == "":
		return fault.New(fault.Invalid, "there is no command to run")
	case len(c.Argv) > 0 && c.Script != "":
		return fault.New(fault.Invalid, "a command has either arguments or a script, not both")
	case c.Dir != "":
		if err := CheckPath(c.Dir); err != nil {
			return err
		}
	}
	for _, a := range append(append([]string{}, c.Argv...), c.Script) {
		if strings.ContainsRune(a, 0) {
			return fault.New(fault.Invalid, "a command holds a NUL byte")
		}
	}
	for k, v := range c.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return fault.New(fault.Invalid, "environment variable %q cannot be set", k)
		}
	}
	return nil
}

// FromWire turns an entry as the helper sends it into an Entry.
func FromWire(w wire.Entry) Entry {
	e := Entry{Root: w.Root, Name: w.Name, Size: w.Size, UID: w.UID, GID: w.GID, Link: w.Link, SHA256: w.SHA256,
		Mode: fs.FileMode(w.Mode & 0o777)}
	for bit, m := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if w.Mode&bit != 0 {
			e.Mode |= m
		}
	}
	switch w.Kind {
	case wire.KindFile:
		e.Kind = File
	case wire.KindDir:
		e.Kind = Dir
	case wire.KindSymlink:
		e.Kind = Symlink
	case wire.KindOther:
		e.Kind = Other
	}
	if w.Err != "" {
		e.Err = fault.New(fault.Kind(w.ErrKind), "%s", w.Err)
	}
	return e
}
