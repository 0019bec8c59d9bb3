package bundle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"agentenv/fault"
	"agentenv/store"
)

// Catalog is the bundles of one distribution, such as those in the program. It is immutable and safe for concurrent use.
type Catalog struct {
	dist, version string
	fsys          fs.FS
	names         []string
	files         map[string]func() (io.ReadCloser, error)
}

// NewCatalog returns the bundles in fsys, one a top-level folder, under the id root @local/<dist>/<name>.
func NewCatalog(dist, version string, fsys fs.FS) (*Catalog, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	c := &Catalog{dist: dist, version: version, fsys: fsys}
	for _, e := range entries {
		if e.IsDir() {
			c.names = append(c.names, e.Name())
		}
	}
	return c, nil
}

// With returns the catalog with files that are made when a bundle is opened, by their path in fsys. An error of making one is that of opening
// its bundle; the list of bundles does without them.
func (c *Catalog) With(files map[string]func() (io.ReadCloser, error)) *Catalog {
	with := *c
	with.files = files
	return &with
}

// Names returns the names of the shipped bundles, sorted.
func (c *Catalog) Names() []string { return c.names }

// Open finds and parses a bundle: a folder (also whatever begins with ".", "/" or "~"), else the name of a shipped one, bare or as
// <distribution>/<name>. A shipped one is laid out in a temporary folder that release removes; release is never nil and may be called
// twice. An unknown name is NotFound and suggests close ones.
func (c *Catalog) Open(text, home string) (b *Bundle, release func(), err error) {
	release = func() {}
	info, statErr := os.Stat(text)
	isPath := text == "" || strings.ContainsRune("./~", rune(text[0]))
	if isPath || statErr == nil && info.IsDir() {
		b, err = Parse(text, home)
		if name := c.named(text); err != nil && name != "" {
			err = fault.At(err, "the folder %s, not the shipped bundle, which is %s/%s", shown(text), c.dist, name)
		}
		return b, release, err
	}
	name := c.named(strings.TrimPrefix(text, c.dist+"/"))
	if name == "" {
		why := shown(text) + " is neither a folder nor an installed bundle"
		if near := store.Near(text, c.names); len(near) > 0 {
			why += "; did you mean " + quoteAll(near) + "?"
		}
		return nil, release, fault.New(fault.NotFound, "%s (agent-env run lists the installed bundles)", why)
	}
	opened, remove, err := c.open(name)
	if err != nil {
		return nil, release, err
	}
	return opened, remove, nil
}

// make makes the files of a bundle that are laid out in dir.
func (c *Catalog) make(name, dir string) error {
	for p, open := range c.files {
		inner, ok := strings.CutPrefix(p, name+"/")
		if !ok {
			continue
		}
		from, err := open()
		if err != nil {
			return fault.At(err, "the bundle %s", name)
		}
		err = writeFile(filepath.Join(dir, filepath.FromSlash(inner)), from)
		from.Close()
		if err != nil {
			return fault.Wrap(fault.Unavailable, err, "lay out the bundle %s", name)
		}
	}
	return nil
}

func writeFile(name string, from io.Reader) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Chmod(0o644), f.Close())
}

func (c *Catalog) named(text string) string {
	for _, n := range c.names {
		if n == text {
			return n
		}
	}
	return ""
}

// staleLayout is how old a laid out folder must be to count as left behind by a process that was killed.
const (
	layoutPrefix = "agentenv-bundle-"
	staleLayout  = 24 * time.Hour
)

// sweepLayouts removes what killed processes laid out.
func sweepLayouts() {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), layoutPrefix+"*"))
	for _, dir := range old {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && time.Since(info.ModTime()) > staleLayout {
			os.RemoveAll(dir)
		}
	}
}

// layOut copies a shipped bundle into a new temporary folder and returns its canonical path.
func (c *Catalog) layOut(name string) (string, error) {
	sweepLayouts()
	tmp, err := os.MkdirTemp("", layoutPrefix+"*")
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "lay out the bundle %s", name)
	}
	dir, err := filepath.EvalSymlinks(tmp)
	if err == nil {
		err = copyTree(c.fsys, name, dir)
	}
	if err != nil {
		os.RemoveAll(tmp)
		return "", fault.Wrap(fault.Unavailable, err, "lay out the bundle %s", name)
	}
	return dir, nil
}

// copyTree writes the folder name of fsys to dir, files with mode 0644 whatever the umask.
func copyTree(fsys fs.FS, name, dir string) error {
	return fs.WalkDir(fsys, name, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(strings.TrimPrefix(p, name), "/")))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		body, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		if err := os.WriteFile(target, body, 0o644); err != nil {
			return err
		}
		return os.Chmod(target, 0o644)
	})
}

// Table returns the list of shipped bundles for people.
func (c *Catalog) Table() string {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tPACKAGE\tCONTENTS\tDESCRIPTION")
	aliases := make([]string, len(c.names))
	for i, name := range c.names {
		contents, about := "invalid", ""
		b, _, err := c.glance(name)
		if err != nil {
			about = oneLine(err.Error())
		} else {
			contents, about, aliases[i] = b.contents(), b.Description, b.aliasList()
		}
		fmt.Fprintf(w, "%s\t%s %s\t%s\t%s\n", name, c.dist, c.version, contents, about)
	}
	w.Flush()
	var out strings.Builder
	rows := strings.SplitAfter(table.String(), "\n")
	indent := strings.Index(rows[0], "PACKAGE")
	for i, row := range rows {
		out.WriteString(row)
		if i > 0 && i <= len(aliases) && aliases[i-1] != "" {
			fmt.Fprintf(&out, "%*saliases: %s\n", indent, "", aliases[i-1])
		}
	}
	out.WriteString("\nRun one with agent-env run NAME. Make one of your own with agent-env bundle new FOLDER.\n")
	return out.String()
}

// contents counts what of a bundle can run.
func (b *Bundle) contents() string {
	var parts []string
	if n := len(b.Of(StoreTask)); n > 0 {
		parts = append(parts, count(n, "task"))
	}
	if n := len(b.Of(StoreEval)); n > 0 {
		parts = append(parts, count(n, "eval"))
	}
	return strings.Join(parts, ", ")
}

// aliasList is the names that the bundle gives, for people.
func (b *Bundle) aliasList() string {
	var names []string
	for _, al := range b.aliases {
		names = append(names, al.name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// New makes a bundle folder from a shipped one, with a README of its own, and returns the files made, relative to it. dir must not
// exist or be an empty folder (Exists otherwise), its parent must, and its path must give ids (Invalid). Nothing is left when it fails.
func (c *Catalog) New(dir, template, home string) ([]string, error) {
	if c.named(template) == "" {
		return nil, fault.New(fault.NotFound, "there is no bundle %s to begin from", shown(template))
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%s", printable(dir))
	}
	switch entries, err := os.ReadDir(abs); {
	case err == nil && len(entries) > 0:
		return nil, fault.New(fault.Exists, "%s: the folder is not empty; name a new one", printable(dir))
	case err != nil && !os.IsNotExist(err):
		return nil, fault.New(fault.Invalid, "%s: %s", printable(dir), fault.Reason(err).Error())
	}
	parent := filepath.Dir(abs)
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		return nil, fault.New(fault.NotFound, "%s: the folder %s is not there; make it first", printable(dir), printable(parent))
	}
	stage, err := os.MkdirTemp(parent, "."+filepath.Base(abs)+".new-*")
	if err != nil {
		return nil, fault.New(fault.KindOf(err), "%s: %s", printable(dir), fault.Reason(err).Error())
	}
	defer os.RemoveAll(stage)
	if err := os.Chmod(stage, 0o755); err != nil {
		return nil, err
	}
	if err := copyTree(c.fsys, template, stage); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "%s", printable(dir))
	}
	readme := fmt.Sprintf(newReadme, printable(filepath.Base(abs)))
	if err := os.WriteFile(filepath.Join(stage, "README.md"), []byte(readme), 0o644); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "%s", printable(dir))
	}
	if _, _, err := IDRoot(parent, home); err != nil {
		return nil, err
	}
	if err := store.CheckAuthoredID(store.LocalPrefix + filepath.Base(abs)); err != nil {
		return nil, fault.New(fault.Invalid, "%s: the name cannot be part of an id: %s", printable(dir), short(err))
	}
	// An empty folder makes way; one that was filled meanwhile does not.
	if err := os.Remove(abs); err != nil && !os.IsNotExist(err) {
		return nil, fault.New(fault.Exists, "%s: %s", printable(dir), fault.Reason(err))
	}
	if err := os.Rename(stage, abs); err != nil {
		return nil, fault.New(fault.KindOf(err), "%s: %s", printable(dir), fault.Reason(err).Error())
	}
	var files []string
	err = fs.WalkDir(os.DirFS(abs), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path.Clean(p))
		}
		return err
	})
	return files, err
}

const newReadme = `# %s

A bundle of agent-env. Check it with ` + "`agent-env bundle check .`" + ` and run it with ` + "`agent-env run .`" + `, here in this folder.

- ` + "`tasks/`" + ` holds one JSON file a task: the list of its steps. ` + "`agent-env steps list`" + ` shows every step.
- ` + "`artifacts/`" + ` holds one folder for each set of files (or image, where it has a Dockerfile) that steps name.
`
