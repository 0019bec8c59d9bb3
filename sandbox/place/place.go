// Package place is where a step acts: a host, a container beside it, or a sandbox that is itself a container. A step never
// decides which; it gets a Place (sandbox.PlaceOf) and says what it wants. Files move as one tar stream, need no tool in the
// image, and are checked after they were staged (Put).
package place

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"
)

// Root is the user that loading and collecting act as; the empty user is the place's own (the image's USER in a container,
// this process's user on a host).
const Root = "0"

// Place is one filesystem with processes. Paths are absolute and slash-separated, as the task's author wrote them; a place
// that keeps them elsewhere (the work folder behind /app of a local host) maps them itself. All methods are safe for
// concurrent use and end, with everything they started inside the place, when ctx ends. Errors carry a fault kind and name
// the path and this place: NotFound, Denied, Invalid (a path that cannot be), Unavailable (engine or container gone, disk
// full, read-only), Timeout, Unsupported (this place cannot do that; the text says why).
type Place interface {
	// String names the place in messages: "container agent-local-1a2b3c4d", "host of local-1a2b3c4d".
	String() string
	// Exec runs a command to its end. A nil error means it ran and exited by itself (see Result.Code), also non-zero. A
	// program that is not there is a NotFound error. When c.Timeout or ctx ends, the whole process tree is ended (also what
	// ignores SIGTERM or left its session) before Exec returns a Timeout or Canceled error, with the Result so far. It
	// returns when the command ends, even if a background child holds its output open.
	Exec(ctx context.Context, c Cmd) (*Result, error)
	// LookPath returns the absolute path of the first of names found as an executable on the place's PATH ("" and a NotFound
	// error when there is none). It starts no process in the place's name.
	LookPath(ctx context.Context, names ...string) (string, error)
	// PutTar unpacks a tar stream below dir, as root where the place has a root, making dir and parents (0755) as needed.
	// Existing files are replaced whole, links in the way are replaced and not followed. Use Put, which checks the result.
	PutTar(ctx context.Context, dir string, tar io.Reader) error
	// Get streams what is at roots, in their order: a file, or a folder with everything below it. Reads act as root. A root
	// that is absent or cannot be read gives an Entry with Err and the stream goes on.
	Get(ctx context.Context, req GetRequest) (Tree, error)
	// Stat describes one path; follow resolves links inside the place. An absent path is a NotFound error.
	Stat(ctx context.Context, path string, follow bool) (Entry, error)
	// Walk lists everything below root (root itself is not listed), names relative to root, parents before children, links
	// not followed, sorted. With hash the entries of regular files carry the sha256 of their content. An entry that cannot
	// be read carries Err.
	Walk(ctx context.Context, root string, hash bool) iter.Seq2[Entry, error]
	// Restore puts the author's paths back into text that the place's own commands printed (identity in a container).
	Restore(text string) string
}

// Cmd is a command to run.
type Cmd struct {
	Argv    []string          // the program and its arguments; never a shell line
	Script  string            // with Argv nil: a shell line, run by bash where the place has it, else sh
	Dir     string            // working folder, entered by the engine, so User need not be able to; "" = the place's own
	Env     map[string]string // added to the place's environment; values never appear in arguments or logs
	User    string            // "" = the place's own user, Root = uid 0
	Stdin   io.Reader         // nil = empty
	Stdout  io.Writer         // nil = kept in the Result
	Stderr  io.Writer
	Timeout time.Duration // 0 = until ctx ends
	Grace   time.Duration // between SIGTERM and SIGKILL; 0 = 2 s
	Keep    int64         // how many last bytes of each kept stream the Result holds; 0 = 64 MiB
}

// Result is how a command ended. Stdout and Stderr are raw bytes (empty where the Cmd had a writer); use Text for text.
type Result struct {
	Code               int // 128+n for a command ended by signal n
	Stdout, Stderr     []byte
	CutStdout, CutErr  int64 // bytes dropped from the front of each
	Duration           time.Duration
	Shell              string // the shell that ran Cmd.Script: "bash" or "sh"
	BackgroundLeftOpen bool   // a background child held the output open when the command ended
}

// Kind is the kind of a filesystem entry.
type Kind string

// The kinds of entries.
const (
	File    Kind = "file"
	Dir     Kind = "folder"
	Symlink Kind = "symlink"
	Other   Kind = "special file"
)

// Entry describes one path in a place.
type Entry struct {
	Root     int    // in a Tree: the index of the root it belongs to
	Name     string // relative to the root, "" for the root itself; raw bytes of the name
	Kind     Kind
	Size     int64
	Mode     fs.FileMode // permission, setuid, setgid and sticky bits
	UID, GID int
	Link     string // target of a symlink, as written
	SHA256   string // hex, where asked for
	Err      error  // why the entry could not be read
}

// GetRequest says what Get streams.
type GetRequest struct {
	Roots  []string
	Follow bool                         // a root that is a link is resolved inside the place; links below it never are
	Skip   func(root, name string) bool // entries not to send, folders with everything below them; nil = none
}

// Tree is a stream of entries. Read reads the body of the current entry when that is a file; a body that turns out shorter
// or longer than Entry.Size ends in an error. Not safe for concurrent use.
type Tree interface {
	// Next goes to the next entry; io.EOF after the last.
	Next() (Entry, error)
	io.Reader
	// Close ends the stream and whatever serves it; a second call is a no-op.
	Close() error
}

// Source is one file, folder or link to put into a place.
type Source struct {
	Name   string      // relative slash path; validated by Put
	Mode   fs.FileMode // permission bits; 0 = 0644 for files, 0755 for folders
	Size   int64       // of the content; a Body of another length is an error
	Body   func(ctx context.Context) (io.ReadCloser, error)
	Folder bool
	Link   string // a symlink with this target, when not empty
	SHA256 string // hex, when known beforehand: what arrives must equal it
}

// Placed is one file as it was found in the place after staging.
type Placed struct {
	Name   string
	Size   int64
	SHA256 string
}
