package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"agentenv/artifact"
	"agentenv/fault"
)

func (a *App) skillCommands() *cobra.Command {
	var get target
	return newGroup("skill", "Agent Skills", a.skillPut(), get.getFlags(a.getCommand(&get, artifact.TypeSkill)))
}

func (a *App) skillPut() *cobra.Command {
	var t target
	var dir, prefix string
	cmd := a.command("put", "Publish a skill: a folder with a SKILL.md", func(ctx context.Context, s *Services) error {
		if (dir == "") == (prefix == "") {
			return fault.New(fault.Invalid, "name the skill by --skill-dir or by --prefix-url, one of the two")
		}
		var sk *artifact.Skill
		var err error
		if dir != "" {
			files, ferr := a.folderSources(dir)
			if ferr != nil {
				return ferr
			}
			fmt.Fprintf(a.Stdout, "Uploading SkillArtifact bundle (%d file(s))...\n", len(files))
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
	needFolder(cmd, "skill-dir")
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
		fmt.Fprintln(a.Stdout, "Frontmatter:")
		for _, kv := range [][2]string{{"name", head.Name}, {"description", head.Description}, {"license", head.License},
			{"compatibility", head.Compatibility}, {"allowed-tools", head.AllowedTools}} {
			if kv[1] != "" {
				fmt.Fprintf(a.Stdout, "  %s: %s\n", kv[0], kv[1])
			}
		}
		if sk.Metadata != nil {
			fmt.Fprintln(a.Stdout, "  metadata:")
			for _, key := range sk.Metadata.Keys() {
				fmt.Fprintf(a.Stdout, "    %s: %s\n", key, sk.Metadata.Str(key))
			}
		}
		if r := []rune(rest); len(r) > 500 {
			rest = string(r[:500])
		}
		fmt.Fprintf(a.Stdout, "Body (first 500 chars):\n%s\n", rest)
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
		file := filepath.Join(get.output, filepath.FromSlash(entry))
		if err := os.Chmod(file, 0o755); err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "Entrypoint: %s\n", file)
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
		fmt.Fprintf(a.Stdout, "Uploading CliArtifact bundle (%d file(s)) from %s...\n", len(files), dir)
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
	needFolder(cmd, "cli-dir")
	return cmd
}
