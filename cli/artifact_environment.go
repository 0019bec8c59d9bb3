package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store"
)

func (a *App) environmentCommands() *cobra.Command {
	var t target
	var description, name string
	put := &cobra.Command{Use: "put FILE", Short: "Publish the data of an environment", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		if err := needFile(cmd, args[0]); err != nil {
			return err
		}
		return a.with(cmd, func(ctx context.Context, s *Services) error {
			src, err := fileSource(args[0], filepath.Base(args[0]))
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Stdout, "Creating FileArtifact...")
			e, err := s.Artifacts.PutEnvironment(ctx, t.id, store.DerivedID(t.id, "file"), name, description, src)
			if err != nil {
				return err
			}
			// File and environment are written together.
			fmt.Fprintf(a.Stdout, "Created FileArtifact: id=%s version=%d filename=%s\nCreating EnvironmentArtifact...\n", e.File.ID, e.File.Version, src.Name)
			fmt.Fprintf(a.Stdout, "Created EnvironmentArtifact: id=%s version=%d environment_name=%s\n", e.ID(), e.Version(), e.Name)
			fmt.Fprintf(a.Stdout, "  pinned FileArtifact: %s:%d\n", e.File.ID, e.File.Version)
			return nil
		})
	}}
	t.idFlag(put)
	put.Flags().StringVar(&description, "description", "", "what the data is (required)")
	put.Flags().StringVar(&name, "environment-name", "", "the environment server it is for (required)")
	_ = put.MarkFlagRequired("description")
	_ = put.MarkFlagRequired("environment-name")
	return newGroup("environment", "Data of environments", put)
}

func (a *App) environmentUniverseCommands() *cobra.Command {
	var get target
	return newGroup("environment-universe", "Data of several environments together", a.environmentUniversePut(),
		get.getFlags(a.getCommand(&get, artifact.TypeEnvironmentUniverse)), a.compatibleEnvs())
}

func (a *App) environmentUniversePut() *cobra.Command {
	var t target
	var envs, metadata []string
	cmd := &cobra.Command{Use: "put", Short: "Publish a set of environments' data", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var set artifact.EnvironmentSet
		for _, e := range envs {
			ref, err := parseRef(e)
			if err != nil {
				return usageError{cmd, err}
			}
			set.Existing = append(set.Existing, ref)
		}
		seen := map[string]bool{}
		for _, m := range metadata {
			key, file, ok := strings.Cut(m, "=")
			if !ok || key == "" || file == "" {
				return fault.New(fault.Invalid, "--metadata %q must be key=/path", m)
			}
			if seen[key] {
				return fault.New(fault.Invalid, "--metadata gives the key %q twice", key)
			}
			seen[key] = true
			src, err := fileSource(file, filepath.Base(file))
			if err != nil {
				return fault.At(err, "--metadata %s", key)
			}
			set.Metadata = append(set.Metadata, artifact.NewMetadata{Key: key, Source: src})
		}
		return a.with(cmd, func(ctx context.Context, s *Services) error {
			for i, ref := range set.Existing {
				a.fetching("EnvironmentArtifact", ref)
				e, err := artifact.GetAs[*artifact.Environment](ctx, s.Artifacts, ref)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.Stdout, "  Found: id=%s version=%d\n", e.ID(), e.Version())
				set.Existing[i] = artifact.Ref{ID: e.ID(), Version: e.Version()}
			}
			u, err := s.Artifacts.PutEnvironmentUniverse(ctx, t.id, set)
			if err != nil {
				return err
			}
			for i, m := range u.Metadata {
				file := set.Metadata[i].Source.Name
				fmt.Fprintf(a.Stdout, "Creating metadata FileArtifact: key=%s file=%s...\n", m.Name, file)
				fmt.Fprintf(a.Stdout, "  Created FileArtifact: id=%s version=%d filename=%s\n", m.Ref.ID, m.Ref.Version, file)
			}
			fmt.Fprintln(a.Stdout, "Creating EnvironmentUniverseArtifact...")
			fmt.Fprintf(a.Stdout, "Created EnvironmentUniverseArtifact: id=%s version=%d %s\n", u.ID(), u.Version(), foundDetail(u, 0))
			return nil
		})
	}}
	t.idFlag(cmd)
	cmd.Flags().StringArrayVar(&envs, "environment-artifact", nil, "id, or id:version, of an environment (required, repeatable)")
	cmd.Flags().StringArrayVar(&metadata, "metadata", nil, "key=/path of a metadata file (repeatable)")
	_ = cmd.MarkFlagRequired("environment-artifact")
	return cmd
}

// parseRef reads "id" or "id:version".
func parseRef(text string) (artifact.Ref, error) {
	id, v, pinned := strings.Cut(text, ":")
	ref := artifact.Ref{ID: id}
	if pinned {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 1 {
			return ref, fault.New(fault.Invalid, "%q is no id or id:version with a version of at least 1", text)
		}
		ref.Version = n
	}
	if id == "" {
		return ref, fault.New(fault.Invalid, "%q names no artifact", text)
	}
	return ref, nil
}

func (a *App) compatibleEnvs() *cobra.Command {
	var t target
	cmd := a.command("compatible-envs", "List the envs whose compatibility with a universe was checked", func(ctx context.Context, s *Services) error {
		found, err := s.Compatibility(ctx, t.id)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			fmt.Fprintf(a.Stdout, "No compatibility results found for universe %s\n", t.id)
		}
		for _, f := range found {
			verdict := "INCOMPATIBLE"
			if f.Compatible {
				verdict = "COMPATIBLE"
			}
			fmt.Fprintf(a.Stdout, "  env=%s v%d: %s\n", f.EnvID, f.EnvVersion, verdict)
		}
		return nil
	})
	t.idFlag(cmd)
	return cmd
}
