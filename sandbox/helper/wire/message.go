package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Mode says what a Request asks for.
type Mode string

// The modes.
const (
	ModeExec   Mode = "exec"
	ModeKill   Mode = "kill"
	ModePack   Mode = "pack"
	ModeList   Mode = "list"
	ModeUnpack Mode = "unpack"
	ModeAside  Mode = "aside"
	ModeLook   Mode = "lookpath"
	ModeStatus Mode = "status"
)

// MarkName is the environment variable by which the processes of one command are found again.
const MarkName = "AGENTENV_EXEC"

// Request is what one run of the helper is asked to do. Strings that come from file names are bytes, since names need not
// be UTF-8.
type Request struct {
	Mode    Mode              `json:"mode"`
	Argv    [][]byte          `json:"argv,omitempty"`   // exec
	Script  []byte            `json:"script,omitempty"` // exec: a shell line, when Argv is empty
	Env     map[string][]byte `json:"env,omitempty"`    // exec
	Mark    string            `json:"mark,omitempty"`   // exec, kill: the value of MarkName
	PID     int               `json:"pid,omitempty"`    // kill: the helper whose tree ends, 0 = by mark only
	Grace   time.Duration     `json:"grace,omitempty"`  // kill
	Roots   [][]byte          `json:"roots,omitempty"`  // pack, list
	Dir     []byte            `json:"dir,omitempty"`    // unpack, aside
	Name    []byte            `json:"name,omitempty"`   // aside: of the file below Dir
	Perm    uint32            `json:"perm,omitempty"`   // aside
	Big     int64             `json:"big,omitempty"`    // pack: files of at least this size may be fetched aside; 0 = none
	Names   []string          `json:"names,omitempty"`  // lookpath
	Follow  bool              `json:"follow,omitempty"` // pack, list: a root that is a link is resolved
	Recurse bool              `json:"recurse,omitempty"`
	Hash    bool              `json:"hash,omitempty"`
	Ask     bool              `json:"ask,omitempty"` // pack: list first, then wait for Skip frames and Go
}

// Start answers an exec: the command runs.
type Start struct {
	PID   int    `json:"pid"` // of the helper, in the container's own numbering
	Shell string `json:"shell,omitempty"`
}

// Offer is the payload of an Aside frame: a file whose content may move past the helper. Without a path none may.
type Offer struct {
	Path     string
	Dev, Ino uint64 // of the file, by which who opens it elsewhere knows that it is the same; 0 = not told
}

// Append appends the encoded offer to b.
func (o Offer) Append(b []byte) []byte {
	b = append(b, o.Path...)
	if o.Ino != 0 {
		b = fmt.Appendf(b, "\x00%d:%d", o.Dev, o.Ino)
	}
	return b
}

// ParseOffer decodes what Append made. Numbers that cannot be read are as if they were not told.
func ParseOffer(b []byte) Offer {
	path, numbers, _ := strings.Cut(string(b), "\x00")
	o := Offer{Path: path}
	dev, ino, _ := strings.Cut(numbers, ":")
	d, derr := strconv.ParseUint(dev, 10, 64)
	if i, err := strconv.ParseUint(ino, 10, 64); err == nil && derr == nil {
		o.Dev, o.Ino = d, i
	}
	return o
}

// KillRequest asks to end the running command and everything it started.
type KillRequest struct {
	Grace time.Duration `json:"grace"`
}

// ExitStatus is how a command ended, or a container's own command (ModeStatus).
type ExitStatus struct {
	Code       int  `json:"code"`
	Running    bool `json:"running,omitempty"`    // status: it still runs
	Background bool `json:"background,omitempty"` // exec: something still held the output open
	Left       int  `json:"left,omitempty"`       // processes that could not be ended
}

// Failure is an error that crosses the wire. Kind is one of the fault kinds.
type Failure struct {
	Kind string `json:"kind"`
	Msg  string `json:"msg"`
}

// Error returns the message.
func (f *Failure) Error() string { return f.Msg }

// Fail turns an error into a Failure, telling its kind from the system's error number.
func Fail(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return &Failure{Kind: KindOf(err), Msg: err.Error()}
}

// KindOf returns the fault kind of a system error; "internal" when it is none that is known.
func KindOf(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		switch no {
		case syscall.ENOENT, syscall.ENOTDIR:
			return "not found"
		case syscall.EACCES, syscall.EPERM:
			return "denied"
		case syscall.ENOSPC, syscall.EROFS, syscall.EIO, syscall.EDQUOT:
			return "unavailable"
		case syscall.ENAMETOOLONG, syscall.ELOOP, syscall.EINVAL, syscall.EISDIR:
			return "invalid"
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "not found"
	case errors.Is(err, fs.ErrPermission):
		return "denied"
	}
	return "internal"
}

// ParseFailure reads a Failure from a frame; an empty payload is nil.
func ParseFailure(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	var f Failure
	if err := json.Unmarshal(b, &f); err != nil {
		return &Failure{Kind: "internal", Msg: "unreadable answer of the helper: " + err.Error()}
	}
	return &f
}

// The kinds of an Entry.
const (
	KindFile    = 'f'
	KindDir     = 'd'
	KindSymlink = 'l'
	KindOther   = 'o'
)

// Entry is one filesystem entry on the wire.
type Entry struct {
	Root     int
	Name     string
	Kind     byte
	Size     int64
	Mode     uint32 // permission bits, and 04000, 02000, 01000 for setuid, setgid and sticky
	UID, GID int
	Link     string
	SHA256   string // hex
	ErrKind  string // with Err: why it could not be read
	Err      string
}

// Append appends the encoded entry to b.
func (e *Entry) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(e.Root))
	b = append(b, e.Kind)
	b = binary.AppendUvarint(b, uint64(e.Size))
	b = binary.AppendUvarint(b, uint64(e.Mode))
	b = binary.AppendUvarint(b, uint64(e.UID))
	b = binary.AppendUvarint(b, uint64(e.GID))
	for _, s := range [...]string{e.Name, e.Link, e.SHA256, e.ErrKind, e.Err} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

var errEntry = errors.New("malformed entry record")

// ParseEntry decodes what Append made; trailing or missing bytes are an error.
func ParseEntry(b []byte) (Entry, error) {
	var e Entry
	bad := false
	num := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > 1<<62 {
			bad = true
			return 0
		}
		b = b[n:]
		return v
	}
	e.Root = int(num())
	if bad || len(b) == 0 {
		return Entry{}, errEntry
	}
	e.Kind, b = b[0], b[1:]
	e.Size, e.Mode, e.UID, e.GID = int64(num()), uint32(num()), int(num()), int(num())
	for _, s := range [...]*string{&e.Name, &e.Link, &e.SHA256, &e.ErrKind, &e.Err} {
		n := num()
		if bad || n > uint64(len(b)) {
			return Entry{}, errEntry
		}
		*s, b = string(b[:n]), b[n:]
	}
	if len(b) != 0 {
		return Entry{}, errEntry
	}
	return e, nil
}
