package artifact

import (
	"context"
	"path"
	"regexp"
	"strings"

	"agentenv/fault"
)

// CLISpec says what a command-line tool is called and where it begins.
type CLISpec struct {
	Command    string // installed under /opt/cli/<Command>/
	Entrypoint string // relative path of the executable, one of the files
	EnvID      string // the env it was generated from, "" = none
	EnvVersion int64
}

var commandName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// CheckCLI returns what is wrong with a tool made of the named files, in plain words; none when it is fine.
func CheckCLI(spec CLISpec, names []string) []string {
	var out []string
	if !commandName.MatchString(spec.Command) {
		out = append(out, "command_name "+quoted(spec.Command)+" must be letters, digits, . _ and -, and begin with neither . nor -")
	}
	found := false
	env := path.Join(path.Dir(path.Clean(spec.Entrypoint)), ".env")
	for _, n := range names {
		if path.Clean(n) == path.Clean(spec.Entrypoint) {
			found = true
		}
		if c := path.Clean(n); c == env || strings.HasPrefix(c, env+"/") {
			out = append(out, n+" is in the way: installing the tool writes "+env+" beside its entrypoint")
		}
	}
	if !found {
		out = append(out, "entrypoint "+quoted(spec.Entrypoint)+" is none of its files")
	}
	return out
}

// PutCLI stores a command-line tool: bytes in one batch, then the files' universe and the tool in one transaction. Errors are
// Invalid, before anything is written, for what CheckCLI finds.
func (s *Store) PutCLI(ctx context.Context, id string, spec CLISpec, files []Source) (*CLI, error) {
	if err := checkSources(id, files); err != nil {
		return nil, err
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	if p := CheckCLI(spec, names); len(p) > 0 {
		return nil, fault.New(fault.Invalid, "artifact %s: %s", id, strings.Join(p, "; "))
	}
	ctx = scoped(ctx, id)
	if err := s.check(ctx, id, filesID(id)); err != nil {
		return nil, err
	}
	prefix, err := s.attempt(ctx, TypeCLI, id)
	if err != nil {
		return nil, err
	}
	written, types, err := s.upload(ctx, prefix, files)
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	url := prefixURL(written[0].URL, files[0].Name)
	c := &CLI{head: head{id: id}, FilesID: filesID(id), URL: url, Entrypoint: spec.Entrypoint, Command: spec.Command,
		EnvID: spec.EnvID, EnvVersion: spec.EnvVersion}
	_, err = s.write(ctx, id, func(w *writer) (Artifact, error) {
		if _, err := w.universe(c.FilesID, url, members(c.FilesID, files, written, types)); err != nil {
			return nil, err
		}
		return c, w.add(c)
	})
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	return c, nil
}
