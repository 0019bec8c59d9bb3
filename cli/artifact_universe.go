package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store"
)

// batchLimit is how many universes of a batch get-many takes.
const batchLimit = 10_000

func (a *App) universeCommands() *cobra.Command {
	var get target
	return newGroup("file-artifact-universe", "Sets of files", a.universePut(), a.universePutBundled(),
		get.getFlags(a.getCommand(&get, artifact.TypeUniverse)), a.universeGetMany(), a.universeList())
}

func (a *App) universePut() *cobra.Command {
	var t target
	var files []string
	cmd := a.command("put", "Publish a set of files that are artifacts already, keyed by their file names", func(ctx context.Context, s *Services) error {
		var refs []artifact.NamedRef
		from := map[string]string{}
		fmt.Fprintf(a.Stdout, "Resolving %d FileArtifact(s)...\n", len(files))
		for _, id := range files {
			f, err := artifact.GetAs[*artifact.File](ctx, s.Artifacts, artifact.Ref{ID: id})
			if err != nil {
				return err
			}
			if other, dup := from[f.Filename]; dup {
				return fault.New(fault.Invalid, "%s and %s both have the file name %q", other, id, f.Filename)
			}
			from[f.Filename] = id
			fmt.Fprintf(a.Stdout, "  %s <- %s v%d\n", f.Filename, f.ID(), f.Version())
			refs = append(refs, artifact.NamedRef{Name: f.Filename, Ref: artifact.Ref{ID: f.ID(), Version: f.Version()}})
		}
		fmt.Fprintln(a.Stdout, "Creating FileArtifactUniverse...")
		u, err := s.Artifacts.PutUniverseOf(ctx, t.id, refs)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "Created FileArtifactUniverse: id=%s version=%d file_count=%d\n", u.ID(), u.Version(), len(refs))
		return nil
	})
	t.idFlag(cmd)
	cmd.Flags().StringArrayVar(&files, "file-artifact", nil, "id of a file artifact (required, repeatable)")
	_ = cmd.MarkFlagRequired("file-artifact")
	return cmd
}

func (a *App) universePutBundled() *cobra.Command {
	var t target
	var dir, prefix string
	cmd := a.command("put-bundled", "Publish all files of a folder as one set", func(ctx context.Context, s *Services) error {
		files, err := a.folderSources(dir)
		if err != nil {
			return err
		}
		under := ""
		if prefix != "" {
			under = " under " + prefix
		}
		fmt.Fprintf(a.Stdout, "Uploading %d file(s)%s...\n", len(files), under)
		for _, f := range files {
			fmt.Fprintf(a.Stdout, "  %s\n", f.Name)
		}
		var u *artifact.Universe
		if prefix == "" {
			u, err = s.Artifacts.PutUniverse(ctx, t.id, files)
		} else {
			u, err = s.Artifacts.PutUniverseUnder(ctx, t.id, prefix, files)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "Created FileArtifactUniverse: id=%s version=%d file_count=%d bundle_object_url=%s\n", u.ID(), u.Version(), len(files), u.Prefix)
		return nil
	})
	t.idFlag(cmd)
	cmd.Flags().StringVar(&dir, "file-dir", "", "folder with the files (required)")
	cmd.Flags().StringVar(&prefix, "prefix-url", "", "object URL prefix to store them under (a fresh one when not given)")
	_ = cmd.MarkFlagRequired("file-dir")
	needFolder(cmd, "file-dir")
	return cmd
}

func (a *App) universeList() *cobra.Command {
	var batch string
	var limit int
	cmd := a.command("list", "List sets of files, the latest version of each", func(ctx context.Context, s *Services) error {
		universes, err := s.universes(ctx, batch, limit)
		if err != nil {
			return err
		}
		if len(universes) == 0 {
			fmt.Fprintln(a.Stdout, "No FileArtifactUniverses found.")
		}
		for _, u := range universes {
			fmt.Fprintf(a.Stdout, "  %s v%d  files=%d\n", u.ID(), u.Version(), max(len(u.Refs), len(u.IDs)))
		}
		return nil
	})
	cmd.Flags().StringVar(&batch, "batch-id", "", "only those that runs of this batch collected")
	cmd.Flags().IntVar(&limit, "limit", 50, "at most so many")
	return cmd
}

// universes returns the sets of files of a batch of runs, or the newest of all.
func (s *Services) universes(ctx context.Context, batch string, limit int) ([]*artifact.Universe, error) {
	q := artifact.ListQuery{Type: artifact.TypeUniverse, Limit: limit}
	if batch != "" {
		ids, err := s.Instances.BatchUniverses(ctx, batch)
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		q.IDs = ids
	}
	list, err := s.Artifacts.List(ctx, q)
	var out []*artifact.Universe
	for _, x := range list {
		if u, ok := x.(*artifact.Universe); ok {
			out = append(out, u)
		}
	}
	return out, err
}

func (a *App) universeGetMany() *cobra.Command {
	var ids []string
	var batch, output string
	var concurrency int
	cmd := a.command("get-many", "Write the files of several sets, each into a folder of its own", func(ctx context.Context, s *Services) error {
		if (len(ids) == 0) == (batch == "") {
			return fault.New(fault.Invalid, "name the universes by --id (may be repeated) or by --batch-id, one of the two")
		}
		if batch != "" {
			fmt.Fprintf(a.Stdout, "Resolving universes for batch_id=%s...\n", batch)
		} else {
			fmt.Fprintf(a.Stdout, "Resolving %d universe(s)...\n", len(ids))
		}
		var universes []*artifact.Universe
		for _, id := range ids {
			u, err := artifact.GetAs[*artifact.Universe](ctx, s.Artifacts, artifact.Ref{ID: id})
			if err != nil {
				return err
			}
			universes = append(universes, u)
		}
		if batch != "" {
			var err error
			if universes, err = s.universes(ctx, batch, batchLimit); err != nil {
				return err
			}
		}
		return a.downloadMany(ctx, s, universes, output, concurrency)
	})
	cmd.Flags().StringArrayVar(&ids, "id", nil, "id of a set (repeatable)")
	cmd.Flags().StringVar(&batch, "batch-id", "", "the sets that runs of this batch collected")
	cmd.Flags().StringVar(&output, "output-dir", "", "folder to write into (required)")
	cmd.Flags().IntVar(&concurrency, "concurrency", 8, "files at a time")
	_ = cmd.MarkFlagRequired("output-dir")
	return cmd
}

func (a *App) downloadMany(ctx context.Context, s *Services, universes []*artifact.Universe, output string, concurrency int) error {
	var sets []*artifact.Universe
	seen := map[string]bool{}
	for _, u := range universes { // one that is named twice is written once
		if !seen[u.ID()] {
			seen[u.ID()] = true
			sets = append(sets, u)
		}
	}
	if len(sets) == 0 {
		fmt.Fprintln(a.Stdout, "No universe matches; nothing was downloaded.")
		return nil
	}
	var all []artifact.Member
	shown := map[string]string{} // by path below the output folder
	for _, u := range sets {
		members, err := s.Artifacts.Members(ctx, u)
		if err != nil {
			return fault.At(err, "artifact %s", u.ID())
		}
		for _, m := range members {
			// Checked here too: joined to the folder of its set, a name may lead into another's.
			if err := artifact.CheckRelative(m.Name); err != nil {
				return fault.At(err, "artifact %s: nothing was written", u.ID())
			}
			name := store.FSSafe(u.ID()) + "/" + m.Name
			shown[name] = u.ID() + "/" + m.Name
			m.Name = name
			all = append(all, m)
		}
	}
	fmt.Fprintf(a.Stdout, "%d file(s) to download\n", len(all))
	lines := newOrdered(a.Stdout, all)
	lines.counted = true
	err := artifact.Download(ctx, output, all, concurrency, func(m artifact.Member, _ string, bytes int64) {
		lines.print(m, fmt.Sprintf("%s (%d bytes)\n", shown[m.Name], bytes))
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Stdout, "Done. %d file(s) across %d universe(s) written to %s\n", len(all), len(sets), output)
	return nil
}
