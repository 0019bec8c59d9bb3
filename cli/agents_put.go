package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"agentenv/agent"
	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
)

// maxSkillText is how large a SKILL.md may be, in bytes.
const maxSkillText = 1 << 20

func (a *App) agentPut() *cobra.Command {
	var id, dockerfile, folder, ref, model, key, platform string
	var env, metadata []string
	var disk float64
	var skip bool
	cmd := &cobra.Command{Use: "put", Short: "Store an agent over an image: a Dockerfile, or one in a registry", Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.with(cmd, func(ctx context.Context, s *Services) error {
			switch {
			case (dockerfile == "") == (ref == ""):
				return fault.New(fault.Invalid, "name the image by --dockerfile or by --image-ref, one of the two")
			case folder != "" && dockerfile == "":
				return fault.New(fault.Invalid, "--context belongs to --dockerfile")
			case key != "":
				return fault.New(fault.Unsupported, "--litellm-api-key is for the validation, which this version cannot run yet")
			}
			vars, err := pairs("env-var", env)
			if err != nil {
				return err
			}
			meta, err := parseMetadata(metadata)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("min-disk-size-gb") {
				if disk <= 0 {
					return fault.New(fault.Invalid, "--min-disk-size-gb must be greater than 0")
				}
				meta.Set("min_disk_size_gb", doc.Float(disk))
			}
			if model != "" {
				meta.Set("default_model", model)
			}
			image, err := a.agentImage(ctx, s, store.DerivedID(id, "agent_image"), dockerfile, folder, ref, platform)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Stdout, "Created DockerImageArtifact: id=%s version=%d\n", image.ID(), image.Version())
			stored, err := s.Agents.Documents.Put(ctx, agent.NewAgent{ID: id, DefaultEnv: vars, Metadata: meta,
				Image: agent.ArtifactRef{ID: image.ID(), Version: image.Version(), Type: artifact.TypeDockerImage}})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Stdout, "Created A2AAgent: id=%s version=%d\n", stored.ID, stored.Version)
			if !skip {
				fmt.Fprintln(a.Stderr, "The agent is stored and was not validated: validation needs environments, which this version cannot run yet. --skip-validation says so.")
			}
			return nil
		})
	}
	agentID(cmd, &id)
	f := cmd.Flags()
	f.StringVar(&dockerfile, "dockerfile", "", "the Dockerfile to build the image from")
	f.StringVar(&folder, "context", "", "folder of the build (the Dockerfile's when not given)")
	f.StringVar(&ref, "image-ref", "", "an image in a registry, its registry spelled out")
	f.StringArrayVar(&env, "env-var", nil, "variable of the agent's container, KEY=VALUE; repeatable")
	f.StringArrayVar(&metadata, "metadata", nil, "KEY=VALUE; repeatable; takes_credentials=false says that the agent asks no model")
	f.Float64Var(&disk, "min-disk-size-gb", 0, "disk the agent needs at least")
	f.StringVar(&model, "default-model", "", "model the agent uses when nobody names one")
	f.BoolVar(&skip, "skip-validation", false, "do not validate the agent after storing it")
	f.StringVar(&key, "litellm-api-key", "", "model key for the validation")
	f.StringVar(&platform, "platform", "", "platform of the image, such as linux/amd64")
	return cmd
}

// agentImage stores the image of an agent.
func (a *App) agentImage(ctx context.Context, s *Services, id, dockerfile, folder, ref, platform string) (*artifact.DockerImage, error) {
	if ref != "" {
		return s.Artifacts.PutRef(ctx, id, artifact.RefImage{Ref: ref, Platform: platform})
	}
	if folder == "" {
		folder = filepath.Dir(dockerfile)
	}
	inside, err := filepath.Rel(folder, dockerfile)
	if err != nil || !filepath.IsLocal(inside) {
		return nil, fault.New(fault.Invalid, "the Dockerfile %s does not lie in the build's folder %s", dockerfile, folder)
	}
	c, err := artifact.OpenContext(ctx, folder, filepath.ToSlash(inside))
	if err != nil {
		return nil, err
	}
	return s.Artifacts.PutContext(ctx, id, artifact.ContextImage{Context: c, Platform: platform})
}

// skillBody is what a skill's registration says: its name, description and text.
func (a *App) skillBody(ctx context.Context, s *Services, id string, version int64, file string) (*doc.Object, error) {
	var text []byte
	if file != "" {
		var err error
		if text, err = readSmall(file, maxSkillText); err != nil {
			return nil, err
		}
	} else {
		sk, err := artifact.GetAs[*artifact.Skill](ctx, s.Artifacts, artifact.Ref{ID: id, Version: version})
		if err != nil {
			return nil, err
		}
		members, err := s.Artifacts.Members(ctx, sk)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			if m.Name != artifact.SkillFile {
				return nil, fault.New(fault.Unsupported, "the skill %s has files besides its SKILL.md, and this version hands over the text alone", id)
			}
			body, err := m.Open(ctx)
			if err != nil {
				return nil, err
			}
			text, err = io.ReadAll(io.LimitReader(body, maxSkillText+1))
			body.Close()
			if err != nil {
				return nil, err
			}
		}
	}
	if len(text) > maxSkillText {
		return nil, fault.New(fault.Invalid, "the SKILL.md of %s is larger than %d bytes", id, maxSkillText)
	}
	head, _, err := artifact.ParseSkill(id, text)
	if err != nil {
		return nil, err
	}
	return doc.Of("name", head.Name, "description", head.Description, "skill_md", string(text)), nil
}
