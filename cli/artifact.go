package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"github.com/spf13/cobra"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store/doc"
)

func (a *App) artifactCommand() *cobra.Command {
	return newGroup("artifact", "Artifacts: named, versioned, immutable files and sets of files",
		a.artifactList(), a.artifactShow(), a.fileCommands(), a.universeCommands(), a.skillCommands(), a.cliCommands(),
		a.environmentCommands(), a.environmentUniverseCommands())
}

// flags of one artifact.
type target struct {
	id      string
	version int64
	output  string
}

func (t *target) idFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.id, "id", "", "id of the artifact (required)")
	_ = cmd.MarkFlagRequired("id")
}

func (t *target) getFlags(cmd *cobra.Command) *cobra.Command {
	t.idFlag(cmd)
	cmd.Flags().Int64Var(&t.version, "version", 0, "version (the latest when not given)")
	cmd.Flags().StringVar(&t.output, "output-dir", "", "folder to write into (required)")
	_ = cmd.MarkFlagRequired("output-dir")
	return cmd
}

func (t *target) ref() artifact.Ref { return artifact.Ref{ID: t.id, Version: t.version} }

// command returns a command without arguments whose work gets the open services.
func (a *App) command(use, short string, work func(ctx context.Context, s *Services) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return a.with(cmd, work) }}
}

func (a *App) artifactList() *cobra.Command {
	var typ string
	var limit int
	var asJSON bool
	cmd := a.command("list", "List artifacts, the latest version of each", func(ctx context.Context, s *Services) error {
		q := artifact.ListQuery{Type: typ}
		if limit > 0 {
			q.Limit = limit + 1 // one more tells whether there are more
		}
		list, err := s.Artifacts.List(ctx, q)
		if err != nil {
			return err
		}
		if limit > 0 && len(list) > limit {
			list = list[:limit]
			defer fmt.Fprintf(a.Stderr, "Only the first %d are shown; --limit 0 shows all, --type one kind.\n", limit)
		}
		if asJSON {
			out := []any{}
			for _, x := range list {
				out = append(out, x.Document())
			}
			return a.printJSON(doc.Of("artifacts", out))
		}
		if len(list) == 0 {
			fmt.Fprintln(a.Stdout, "No artifacts found.")
		}
		for _, x := range list {
			fmt.Fprintf(a.Stdout, "  %s v%d  %s\n", x.ID(), x.Version(), x.Type())
		}
		return nil
	})
	cmd.Flags().StringVar(&typ, "type", "", "only this type")
	cmd.Flags().IntVar(&limit, "limit", 50, "at most so many (0 = all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func (a *App) artifactShow() *cobra.Command {
	var t target
	cmd := a.command("show", "Print an artifact's document as JSON", func(ctx context.Context, s *Services) error {
		x, err := s.Artifacts.Get(ctx, t.ref())
		if err != nil {
			return err
		}
		return a.printJSON(x.Document())
	})
	t.idFlag(cmd)
	cmd.Flags().Int64Var(&t.version, "version", 0, "version (the latest when not given)")
	return cmd
}

func (a *App) fileCommands() *cobra.Command {
	var put target
	var description string
	putCmd := &cobra.Command{Use: "put FILE", Short: "Publish one file", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		if err := needFile(cmd, args[0]); err != nil {
			return err
		}
		return a.with(cmd, func(ctx context.Context, s *Services) error {
			src, err := fileSource(args[0], filepath.Base(args[0]))
			if err != nil {
				return err
			}
			f, err := s.Artifacts.PutFile(ctx, put.id, description, src)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Stdout, "Created FileArtifact: id=%s version=%d filename=%s content_type=%s object_url=%s\n", f.ID(), f.Version(), f.Filename, f.ContentType, f.URL)
			return nil
		})
	}}
	put.idFlag(putCmd)
	putCmd.Flags().StringVar(&description, "description", "", "what it is (the file's name when not given)")
	var get target
	return newGroup("file", "Single files", putCmd, get.getFlags(a.getCommand(&get, artifact.TypeFile)))
}

// getCommand writes an artifact's files below a folder.
func (a *App) getCommand(t *target, typ string) *cobra.Command {
	return a.command("get", "Write its files into a folder", func(ctx context.Context, s *Services) error {
		_, err := a.download(ctx, s, t, typ)
		return err
	})
}

func (a *App) download(ctx context.Context, s *Services, t *target, typ string) (artifact.Artifact, error) {
	a.fetching(className(typ), t.ref())
	x, err := s.Artifacts.Get(ctx, t.ref())
	if err != nil {
		return nil, err
	}
	if x.Type() != typ {
		return nil, fault.New(fault.Invalid, "artifact %s is a %s, not a %s", t.id, x.Type(), typ)
	}
	members, err := s.Artifacts.Members(ctx, x)
	if err != nil {
		return nil, err
	}
	if u, ok := x.(*artifact.EnvironmentUniverse); ok {
		meta, err := s.Artifacts.MetadataFiles(ctx, u)
		if err != nil {
			return nil, err
		}
		for _, m := range meta {
			m.Name = "metadata/" + m.Name
			members = append(members, m)
		}
	}
	fmt.Fprintf(a.Stdout, "Found: id=%s version=%d %s\n", x.ID(), x.Version(), foundDetail(x, len(members)))
	lines := newOrdered(a.Stdout, members)
	err = artifact.Download(ctx, t.output, members, 0, func(m artifact.Member, dest string, _ int64) {
		lines.print(m, fmt.Sprintf("  %s -> %s\n", m.Name, dest))
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(a.Stdout, "Done. Files written to %s\n", t.output)
	return x, nil
}

func fileSource(file, name string) (artifact.Source, error) {
	info, err := os.Stat(file)
	if err != nil {
		return artifact.Source{}, fault.Wrap(fault.KindOf(err), fault.Reason(err), "%s cannot be read", file)
	}
	if !info.Mode().IsRegular() {
		return artifact.Source{}, fault.New(fault.Invalid, "%s is no regular file", file)
	}
	return artifact.Source{Name: name, Size: info.Size(), Open: func(context.Context) (io.ReadCloser, error) { return os.Open(file) }}, nil
}

// folderSources returns every regular file below a folder, by its slash path, sorted. Links and special files are named on stderr.
func (a *App) folderSources(dir string) ([]artifact.Source, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), fault.Reason(err), "folder %s cannot be read", dir)
	}
	if !info.IsDir() {
		return nil, fault.New(fault.Invalid, "%s is no folder", dir)
	}
	var out []artifact.Source
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fault.Wrap(fault.KindOf(err), fault.Reason(err), "%s cannot be read", p)
		}
		if d.IsDir() {
			return nil
		}
		if !d.Type().IsRegular() {
			fmt.Fprintf(a.Stderr, "left out: %s is no regular file\n", p)
			return nil
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		src, err := fileSource(p, filepath.ToSlash(rel))
		out = append(out, src)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fault.New(fault.Invalid, "folder %s holds no files", dir)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}
