package kit

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files maps a slash path to content. To Write, "+x" in front makes the file executable and "->" makes it a link.
type Files map[string]string

// Under puts a folder in front of every name.
func (f Files) Under(dir string) Files {
	out := Files{}
	for name, text := range f {
		out[dir+"/"+name] = text
	}
	return out
}

// And returns both sets; of a name in both, the second's content.
func (f Files) And(more Files) Files {
	out := Files{}
	for _, s := range []Files{f, more} {
		for name, text := range s {
			out[name] = text
		}
	}
	return out
}

// Write writes files below a folder, which it makes if need be, and returns the folder. What is there already is written over.
func Write(t testing.TB, dir string, all Files) string {
	t.Helper()
	for name, text := range all {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case strings.HasPrefix(text, "->"):
			err = os.Symlink(text[2:], p)
		case strings.HasPrefix(text, "+x"):
			err = os.WriteFile(p, []byte(text[2:]), 0o755)
		default:
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Read returns every file below a folder, with nothing in front of its content.
func Read(t testing.TB, dir string) Files {
	t.Helper()
	out := Files{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		b, err := os.ReadFile(p)
		out[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
