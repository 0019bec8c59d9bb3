package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"agentenv/artifact"
	"agentenv/store/doc"
)

func (a *App) skillCommands() *cobra.Command {
	var get target
	return newGroup("skill", "Agent Skills", a.skillPut(), get.getFlags(a.getCommand(&get, artifact.TypeSkill)))
}

func (a *App) skillPut() *cobra.Command {
	var t target
	var dir, prefix string
	cmd := a.command("put", "Publish a skill: a folder with a SKILL.md", func(ctx context.Context, s *Services) error {
		var sk *artifact.Skill
		var err error
		if dir != "" {
			files, ferr := a.folderSources(dir)
			if ferr != nil {
				return ferr
			}
			sk, err = s.Artifacts.PutSkill(ctx, t.id, files)
		} else {
			sk, err = s.Artifacts.PutSkillAt(ctx, t.id, prefix)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "Created SkillArtifact: id=%s version=%d spec_version=%s skill_files_id=%s skill_object_url=%s\n", sk.ID(), sk.Version(), sk.SpecVersion, sk.FilesID, sk.URL)
		return a.printSkill(ctx, s, sk)
	})
	t.idFlag(cmd)
	cmd.Flags().StringVar(&dir, "skill-dir", "", "folder of the skill")
	cmd.Flags().StringVar(&prefix, "prefix-url", "", "object URL prefix under which the skill already lies")
	cmd.MarkFlagsMutuallyExclusive("skill-dir", "prefix-url")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if dir == "" && prefix == "" {
			return usagef(cmd, "give exactly one of --skill-dir and --prefix-url")
		}
		return nil
	}
	return cmd
}

// printSkill shows the head of a skill and the beginning of its text.
func (a *App) printSkill(ctx context.Context, s *Services, sk *artifact.Skill) error {
	members, err := s.Artifacts.Members(ctx, sk)
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.Name != artifact.SkillFile {
			continue
		}
		body, err := m.Open(ctx)
		if err != nil {
			return err
		}
		defer body.Close()
		text, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		head, rest, err := artifact.ParseSkill(sk.ID(), text)
		if err != nil {
			return err
		}
		for _, kv := range [][2]string{{"name", head.Name}, {"description", head.Description}, {"license", head.License},
			{"compatibility", head.Compatibility}, {"allowed-tools", head.AllowedTools}} {
			if kv[1] != "" {
				fmt.Fprintf(a.Stdout, "  %s: %s\n", kv[0], kv[1])
			}
		}
		if sk.Metadata != nil {
			fmt.Fprintf(a.Stdout, "  metadata: %s\n", doc.Canonical(sk.Metadata))
		}
		if r := []rune(rest); len(r) > 500 {
			rest = string(r[:500])
		}
		fmt.Fprintf(a.Stdout, "\n%s\n", rest)
	}
	return nil
}

func (a *App) cliCommands() *cobra.Command {
	var get target
	getCmd := a.command("get", "Write its files into a folder", func(ctx context.Context, s *Services) error {
		x, err := a.download(ctx, s, &get, artifact.TypeCLI)
		if err != nil {
			return err
		}
		entry := x.(*artifact.CLI).Entrypoint
		// Stored files have no modes; the one that is run gets its own back.
		if err := os.Chmod(filepath.Join(get.output, filepath.FromSlash(entry)), 0o755); err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "Entrypoint: %s\n", entry)
		return nil
	})
	return newGroup("cli", "Command-line tools for agents", a.cliPut(), get.getFlags(getCmd))
}

func (a *App) cliPut() *cobra.Command {
	var t target
	var dir string
	var spec artifact.CLISpec
	cmd := a.command("put", "Publish a command-line tool: a folder with its executable", func(ctx context.Context, s *Services) error {
		files, err := a.folderSources(dir)
		if err != nil {
			return err
		}
		c, err := s.Artifacts.PutCLI(ctx, t.id, spec, files)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "Created CliArtifact: id=%s version=%d command_name=%s entrypoint=%s cli_files_id=%s cli_object_url=%s\n",
			c.ID(), c.Version(), c.Command, c.Entrypoint, c.FilesID, c.URL)
		return nil
	})
	t.idFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&dir, "cli-dir", "", "folder of the tool (required)")
	f.StringVar(&spec.Entrypoint, "entrypoint", "", "path of the executable in it (required)")
	f.StringVar(&spec.Command, "command-name", "", "name it is installed under (required)")
	f.StringVar(&spec.EnvID, "env-id", "", "env it was generated from")
	f.Int64Var(&spec.EnvVersion, "env-version", 0, "version of that env")
	for _, name := range []string{"cli-dir", "entrypoint", "command-name"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}
