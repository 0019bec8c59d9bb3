package bundle

import (
	"cmp"
	"context"
	"fmt"

	"agentenv/artifact"
	"agentenv/config"
)

// content checks what each type wants in its folder.
func (p *Plan) content(ctx context.Context, en *entry, found *problems) error {
	e := en.e
	names := make([]string, len(en.files))
	for i, f := range en.files {
		names[i] = f.name
	}
	one := func() {
		if len(en.files) != 1 {
			found.add(e.Path, fmt.Sprintf("%s %s holds exactly one file, and this folder holds %d", article(e.Type), e.Type, len(en.files)))
		}
	}
	switch e.Type {
	case artifact.TypeFile:
		one()
	case artifact.TypeUniverse:
		if len(en.files) == 0 {
			found.add(e.Path, "a file_artifact_universe needs at least one file")
		}
	case artifact.TypeSkill:
		for _, f := range en.files {
			if f.name == artifact.SkillFile {
				text, err := config.ReadFile(f.disk)
				if err == nil {
					_, _, err = artifact.ParseSkill(e.ID, text)
				}
				if err != nil {
					found.add(e.Path, printable(err.Error()))
				}
			}
		}
	case artifact.TypeCLI:
		spec := artifact.CLISpec{Command: e.config.Str("command_name"), Entrypoint: e.config.Str("entrypoint")}
		for _, why := range artifact.CheckCLI(spec, names) {
			found.add(e.Path, printable(why))
		}
	case artifact.TypeEnvironment:
		if e.config.Value("file") == nil {
			one()
		} else if len(en.files) > 0 {
			found.add(e.Path, "file names another artifact, so the folder holds only its artifact.toml")
		}
	case artifact.TypeEnvironmentUniverse:
		en.envs, en.meta = e.b.universeFolder(e, en.files, found)
		if len(en.envs)+len(e.config.Arr("environment_artifacts")) == 0 {
			found.add(e.Path, "an environment_universe needs at least one environment")
		}
		seen := map[string]bool{}
		for _, u := range en.envs {
			seen[u.name] = true
		}
		for _, need := range en.needs {
			if name := need.e.config.Str("environment_name"); seen[name] {
				found.add(e.Path, "two environments are named "+shown(name))
			} else {
				seen[name] = true
			}
		}
	case artifact.TypeDockerImage:
		return p.imageContent(ctx, en, found)
	}
	return nil
}

func (p *Plan) imageContent(ctx context.Context, en *entry, found *problems) error {
	e := en.e
	if ref := e.config.Value("ref"); ref != nil {
		if len(e.b.walk(e, false, found)) > 0 {
			found.add(e.Path, "ref names an image in a registry, so the folder holds only its artifact.toml; drop ref or the files")
		}
		if r, ok := ref.(string); ok && artifact.RegistryOf(r) == "" {
			found.add(e.Path, "ref "+shown(r)+" must spell out its registry, as docker.io/library/… does")
		}
		return nil
	}
	files := make([]artifact.ContextFile, len(en.files))
	for i, f := range en.files {
		files[i] = artifact.ContextFile{Name: f.name, Path: f.disk}
	}
	c, err := artifact.ContextOf(ctx, e.Path, cmp.Or(e.config.Str("dockerfile"), "Dockerfile"), files)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		found.add(e.Path, printable(err.Error()))
		return nil
	}
	en.context = c
	return nil
}
