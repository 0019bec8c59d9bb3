package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/text/unicode/norm"

	"agentenv/artifact"
	"agentenv/store"
)

// universeFile is one environment or one metadata file of an environment_universe folder.
type universeFile struct {
	name string // the environment's name, or the metadata key
	file file
}

// universeFolder sorts the files of an environment_universe folder into environments and metadata, both in name order, and reports
// every folder that holds the wrong number of files.
func (b *Bundle) universeFolder(e *Entity, files []file, p *problems) (envs, metadata []universeFile) {
	by := map[string][]file{}
	for _, f := range files {
		dir, _ := path.Split(f.name)
		by[strings.TrimSuffix(dir, "/")] = append(by[strings.TrimSuffix(dir, "/")], f)
	}
	for _, f := range by[""] {
		p.add(e.Path+"/"+printable(f.name), "a stray file: each environment is a folder that holds its one file")
	}
	for _, f := range by["metadata"] {
		p.add(e.Path+"/"+printable(f.name), "a file directly in metadata/: each key is a folder that holds its one file")
	}
	dirs := make([]string, 0, len(by))
	for d := range by {
		dirs = append(dirs, d)
	}
	sort.Strings(dirs)
	for _, d := range dirs {
		top, _, _ := strings.Cut(d, "/")
		switch {
		case d == "" || d == "metadata":
		case top != "metadata" && fold(top) == "metadata":
			p.add(e.Path+"/"+printable(top), "rename to metadata; names are case-sensitive")
		case len(by[d]) > 1:
			p.add(e.Path+"/"+printable(d), "a folder with files of its own holds exactly one, and this holds several")
		case top == "metadata":
			metadata = append(metadata, universeFile{strings.TrimPrefix(d, "metadata/"), by[d][0]})
		default:
			envs = append(envs, universeFile{d, by[d][0]})
		}
	}
	for _, d := range emptyFolders(e.disk, "") {
		p.add(e.Path+"/"+printable(d), "a folder without a file")
	}
	return envs, metadata
}

// emptyFolders lists the leaf folders that hold no file that counts.
func emptyFolders(disk, name string) []string {
	entries, err := os.ReadDir(filepath.Join(disk, filepath.FromSlash(name)))
	if err != nil {
		return nil
	}
	var out []string
	held := false
	for _, c := range entries {
		if artifact.Leaving(c.Name()) {
			continue
		}
		held = true
		if c.IsDir() {
			out = append(out, emptyFolders(disk, path.Join(name, c.Name()))...)
		}
	}
	if !held && name != "" {
		out = append(out, norm.NFC.String(name))
	}
	return out
}

// partID is the id of a part of a universe: the name itself, or its hash where an id cannot hold the name.
func partID(base, name string) string {
	id := store.DerivedID(base, name)
	if strings.Contains(name, "__") || store.IsLocal(id) && store.CheckLocalID(store.DerivedID(id, "file")) != nil {
		sum := sha256.Sum256([]byte(name))
		return store.DerivedID(store.DerivedID(base, "sha256"), hex.EncodeToString(sum[:8]))
	}
	return id
}
