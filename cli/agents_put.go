package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentenv/agent"
	"agentenv/agent/objects"
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
			case key != "" && !skip:
				return fault.New(fault.Unsupported, "--litellm-api-key is for the validation, which this version cannot run yet")
			}
			if err := s.Agents.Documents.CheckID(id); err != nil {
				return err
			}
			if platform != "" {
				if err := checkPlatform(platform); err != nil {
					return err
				}
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

// architectures that Linux images are made for.
var architectures = []string{"386", "amd64", "arm", "arm64", "loong64", "mips64le", "ppc64le", "riscv64", "s390x"}

// checkPlatform refuses what no sandbox can run: agents' images are for Linux.
func checkPlatform(given string) error {
	parts := strings.Split(artifact.NormalizePlatform(given), "/")
	if len(parts) < 2 || len(parts) > 3 || parts[0] != "linux" || !slices.Contains(architectures, parts[1]) || len(parts) == 3 && !platformVariant.MatchString(parts[2]) {
		return fault.New(fault.Invalid, "--platform %q is no platform of Linux images, such as linux/amd64 or linux/arm64", given)
	}
	return nil
}

var platformVariant = regexp.MustCompile(`^v[0-9]{1,2}$`)

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

// skill reads a skill from one of a file, a folder in the object store, and an artifact.
func (a *App) skill(ctx context.Context, s *Services, ref artifact.Ref, file, url string) (objects.Skill, error) {
	var out objects.Skill
	switch {
	case file != "":
		text, err := readSmall(file, maxSkillText)
		if err != nil {
			return out, err
		}
		out.Text = string(text)
	case ref.ID != "":
		found, err := artifact.GetAs[*artifact.Skill](ctx, s.Artifacts, ref)
		if err != nil {
			return out, err
		}
		url = found.URL
	}
	if url != "" {
		var err error
		if out, err = s.Agents.Mover.ReadSkill(ctx, url); err != nil {
			return out, err
		}
	}
	head, _, err := artifact.ParseSkill(ref.ID, []byte(out.Text))
	if err != nil {
		return out, err
	}
	out.Name, out.Description = head.Name, head.Description
	return out, nil
}
