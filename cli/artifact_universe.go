package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

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
		for _, id := range files {
			f, err := artifact.GetAs[*artifact.File](ctx, s.Artifacts, artifact.Ref{ID: id})
			if err != nil {
				return err
			}
			if other, dup := from[f.Filename]; dup {
				return fault.New(fault.Invalid, "%s and %s both have the file name %q", other, id, f.Filename)
			}
			from[f.Filename] = id
			refs = append(refs, artifact.NamedRef{Name: f.Filename, Ref: artifact.Ref{ID: f.ID(), Version: f.Version()}})
		}
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
	cmd.MarkFlagsMutuallyExclusive("id", "batch-id")
	cmd.MarkFlagsOneRequired("id", "batch-id")
	return cmd
}

func (a *App) downloadMany(ctx context.Context, s *Services, universes []*artifact.Universe, output string, concurrency int) error {
	members := make([][]artifact.Member, len(universes))
	total := 0
	for i, u := range universes {
		ms, err := s.Artifacts.Members(ctx, u)
		if err != nil {
			return fault.At(err, "artifact %s", u.ID())
		}
		// Every set is checked before the first file is written.
		for _, m := range ms {
			if err := artifact.CheckRelative(m.Name); err != nil {
				return fault.At(err, "artifact %s: nothing was written", u.ID())
			}
		}
		members[i] = ms
		total += len(ms)
	}
	var mu sync.Mutex
	done := 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, concurrency))
	for i, u := range universes {
		g.Go(func() error {
			dir := filepath.Join(output, filepath.FromSlash(store.FSSafe(u.ID())))
			return artifact.Download(ctx, dir, members[i], concurrency, func(m artifact.Member, _ string, bytes int64) {
				mu.Lock()
				defer mu.Unlock()
				done++
				fmt.Fprintf(a.Stdout, "  [%d/%d] %s/%s (%d bytes)\n", done, total, u.ID(), m.Name, bytes)
			})
		})
	}
	return g.Wait()
}
