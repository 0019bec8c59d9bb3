package code

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"agentenv/artifact"
	"agentenv/fault"
)

// maxScript is the most that the Python files of one script may weigh together.
const maxScript = 5 << 20

// reserved are the names the runner uses in the folder it runs in.
var reserved = []string{"runner.py", "input.json", "output.json"}

// script is what runs: its Python files by their name in the run folder, and which of them is the entry.
type script struct {
	entry   string
	members []artifact.Member // names are those in the run folder
	skipped []string          // members that are no Python files
}

// choose reads the script artifact's documents and picks the entry; it reads no file content. Errors are Invalid, or NotFound
// when there is no such artifact.
func choose(ctx context.Context, store *artifact.Store, ref artifact.Ref, file string) (*script, error) {
	a, err := store.Get(ctx, ref)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.NotFound, "script_artifact '%s' (version %s) does not exist", ref.ID, versionText(ref.Version))
	}
	if err != nil {
		return nil, err
	}
	members, err := store.Members(ctx, a)
	switch {
	case a.Type() != artifact.TypeFile && a.Type() != artifact.TypeUniverse:
		return nil, fault.New(fault.Invalid, "script artifact %q is a %s; it must be a file or a file_artifact_universe", ref.ID, a.Type())
	case err != nil:
		return nil, err
	case a.Type() == artifact.TypeFile:
		if file != "" {
			return nil, fault.New(fault.Invalid, "script_file %q is set, but script artifact %q is a single file; drop script_file", file, ref.ID)
		}
		m := members[0]
		m.Name = "script.py"
		return &script{entry: m.Name, members: []artifact.Member{m}}, nil
	}
	return chooseOf(ref.ID, members, file)
}

func versionText(v int64) string {
	if v == 0 {
		return "latest"
	}
	return fmt.Sprint(v)
}

// chooseOf picks the entry among a universe's members.
func chooseOf(id string, members []artifact.Member, file string) (*script, error) {
	s := &script{}
	var all, bad, taken []string
	for _, m := range members {
		all = append(all, m.Name)
		if badName(m.Name) {
			bad = append(bad, m.Name)
			continue
		}
		if slices.Contains(reserved, m.Name) {
			taken = append(taken, m.Name)
		}
		if strings.HasSuffix(m.Name, ".py") {
			s.members = append(s.members, m)
		} else {
			s.skipped = append(s.skipped, m.Name)
		}
	}
	invalid := func(format string, args ...any) (*script, error) {
		return nil, fault.New(fault.Invalid, "script artifact %q "+format, append([]any{id}, args...)...)
	}
	python := names(s.members)
	taken = slices.DeleteFunc(taken, func(n string) bool { return !strings.HasSuffix(n, ".py") })
	switch {
	case len(all) == 0:
		return invalid("has no files")
	case len(bad) > 0:
		return invalid("has members whose names are no relative paths: %s", list(bad))
	case len(taken) > 0:
		return invalid("has a member with a name the runner needs for itself: %s; rename it", list(taken))
	case len(python) == 0:
		return invalid("has no .py file; it holds %s", list(all))
	case file != "" && !strings.HasSuffix(file, ".py"):
		return invalid("cannot run script_file %q: it must end in .py", file)
	case file != "" && !slices.Contains(python, file):
		return invalid("has no member %q (script_file); its .py files are %s", file, list(python))
	case file != "":
		s.entry = file
	case len(python) == 1:
		s.entry = python[0]
	default:
		var runs []string
		for _, n := range python {
			if path.Base(n) == "run.py" {
				runs = append(runs, n)
			}
		}
		switch len(runs) {
		case 1:
			s.entry = runs[0]
		case 0:
			return invalid("has several .py files and none is called run.py: %s; name one with script_file", list(python))
		default:
			return invalid("is ambiguous: it has several run.py files: %s; name one with script_file", list(runs))
		}
	}
	return s, nil
}

func badName(n string) bool {
	return n == "" || strings.HasPrefix(n, "/") || strings.HasPrefix(n, "~") || slices.Contains(strings.Split(n, "/"), "..")
}

func names(ms []artifact.Member) []string {
	out := make([]string, len(ms))
	for i, m := range ms {
		out[i] = m.Name
	}
	return out
}

// list writes at most ten names.
func list(n []string) string {
	if len(n) > 10 {
		return strings.Join(n[:10], ", ") + fmt.Sprintf(" and %d more", len(n)-10)
	}
	return strings.Join(n, ", ")
}
