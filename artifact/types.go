package artifact

import (
	"agentenv/store/doc"
)

// The built-in types, as stored.
const (
	TypeFile                = "file"
	TypeUniverse            = "file_artifact_universe"
	TypeSkill               = "skill"
	TypeCLI                 = "cli"
	TypeEnvironment         = "environment"
	TypeEnvironmentUniverse = "environment_universe"
	TypeDockerImage         = "docker_image"
)

// SkillSpecVersion is the revision of the Agent Skills format that skills are stored under.
const SkillSpecVersion = "0.1"

type head struct {
	id      string
	version int64
}

// ID returns the artifact's name.
func (h *head) ID() string { return h.id }

// Version returns the stored version, at least 1 for what came from a store.
func (h *head) Version() int64 { return h.version }

func (h *head) core() *head { return h }

func (h *head) open(typ string) *doc.Object {
	return doc.Of("id", h.id, "version", doc.Int(h.version), "type", typ)
}

// File is one file: a document and the bytes at URL.
type File struct {
	head
	Description string
	Filename    string // base name for downloads
	ContentType string
	URL         string
}

// Type returns "file".
func (f *File) Type() string { return TypeFile }

// Document implements Artifact.
func (f *File) Document() *doc.Object {
	return f.open(TypeFile).Set("description", f.Description).Set("filename", f.Filename).Set("content_type", f.ContentType).
		Set("s3_url", f.URL).Set("object_url", f.URL)
}

// NamedRef is one member of a set: a name and the file it stands for. Version 0 is the latest (documents of old writers).
type NamedRef struct {
	Name string
	Ref  Ref
}

// Universe is a set of files under relative names, in the order of its writer.
type Universe struct {
	head
	Refs   []NamedRef // pinned members; empty in documents of old writers
	IDs    []NamedRef // the same without versions, kept for old readers
	Prefix string     // URL that ends in "/" under which all members lie; "" when they lie apart
}

// Type returns "file_artifact_universe".
func (u *Universe) Type() string { return TypeUniverse }

// Document implements Artifact.
func (u *Universe) Document() *doc.Object {
	var refs any
	if u.Refs != nil {
		refs = pinnedMap(u.Refs)
	}
	ids := &doc.Object{}
	for _, m := range u.IDs {
		ids.Set(m.Name, m.Ref.ID)
	}
	return u.open(TypeUniverse).Set("file_artifact_refs", refs).Set("file_artifact_ids", ids).
		Set("bundle_s3_url", textOrNull(u.Prefix)).Set("bundle_object_url", textOrNull(u.Prefix))
}

// Skill is an Agent Skill: a folder with a SKILL.md.
type Skill struct {
	head
	FilesID       string // universe "<id>__files" of its files
	URL           string // prefix of exactly this version's files, ends in "/"
	SpecVersion   string
	Name          string
	Description   string
	License       string // "" = none
	Compatibility string
	AllowedTools  string
	Metadata      *doc.Object // string → string, nil = none
}

// Type returns "skill".
func (s *Skill) Type() string { return TypeSkill }

// Document implements Artifact.
func (s *Skill) Document() *doc.Object {
	var meta any
	if s.Metadata != nil {
		meta = s.Metadata
	}
	return s.open(TypeSkill).Set("skill_files_id", s.FilesID).Set("skill_s3_url", s.URL).
		Set("agent_skills_spec_version", s.SpecVersion).Set("skill_name", s.Name).Set("description", s.Description).
		Set("license", textOrNull(s.License)).Set("compatibility", textOrNull(s.Compatibility)).
		Set("allowed_tools", textOrNull(s.AllowedTools)).Set("skill_metadata", meta).Set("skill_object_url", s.URL)
}

// CLI is a command-line tool that is installed into agents.
type CLI struct {
	head
	FilesID    string
	URL        string // prefix of exactly this version's files, ends in "/"
	Entrypoint string // relative path of the executable
	Command    string // installed under /opt/cli/<Command>/
	EnvID      string // the env it was generated from, "" = none
	EnvVersion int64  // 0 = none
}

// Type returns "cli".
func (c *CLI) Type() string { return TypeCLI }

// Document implements Artifact.
func (c *CLI) Document() *doc.Object {
	var env any
	if c.EnvVersion > 0 {
		env = doc.Int(c.EnvVersion)
	}
	return c.open(TypeCLI).Set("cli_files_id", c.FilesID).Set("cli_s3_url", c.URL).Set("entrypoint", c.Entrypoint).
		Set("command_name", c.Command).Set("env_id", textOrNull(c.EnvID)).Set("env_version", env).Set("cli_object_url", c.URL)
}

// Environment is the seed data of one environment server: a name and one wrapped file.
type Environment struct {
	head
	Name       string
	File       *Ref   // the pinned file, nil in documents of old writers
	LegacyFile string // id without a version, used when File is nil
}

// Type returns "environment".
func (e *Environment) Type() string { return TypeEnvironment }

// Document implements Artifact.
func (e *Environment) Document() *doc.Object {
	d := e.open(TypeEnvironment).Set("service_name", e.Name)
	switch {
	case e.File != nil:
		d.Set("file_artifact_ref", pinned(*e.File))
	default:
		d.Set("file_artifact_ref", nil).Set("file_artifact_id", textOrNull(e.LegacyFile))
	}
	return d.Set("environment_name", e.Name)
}

// EnvironmentUniverse is a set of environments with optional metadata files.
type EnvironmentUniverse struct {
	head
	Environments   []Ref // pinned
	Metadata       []NamedRef
	LegacyIDs      []string // documents of old writers
	LegacyMetadata []NamedRef
}

// Type returns "environment_universe".
func (u *EnvironmentUniverse) Type() string { return TypeEnvironmentUniverse }

// Document implements Artifact.
func (u *EnvironmentUniverse) Document() *doc.Object {
	d := u.open(TypeEnvironmentUniverse)
	if len(u.Environments) == 0 && len(u.LegacyIDs) > 0 {
		ids := make([]any, len(u.LegacyIDs))
		for i, id := range u.LegacyIDs {
			ids[i] = id
		}
		d.Set("service_artifact_ids", ids)
		if u.LegacyMetadata != nil {
			m := &doc.Object{}
			for _, r := range u.LegacyMetadata {
				m.Set(r.Name, r.Ref.ID)
			}
			d.Set("metadata", m)
		}
		return d
	}
	refs := make([]any, len(u.Environments))
	for i, r := range u.Environments {
		refs[i] = pinned(r)
	}
	var meta any
	if u.Metadata != nil {
		meta = pinnedMap(u.Metadata)
	}
	return d.Set("service_artifact_refs", refs).Set("metadata_refs", meta).Set("environment_artifact_refs", refs)
}

// DockerImage is a container image: a reference in a registry, a saved tar, a build context, or several of them.
type DockerImage struct {
	head
	Description  string
	Image        string // image_name: name and tag; a registry reference, or the build's own name
	TarURL       string // `docker save` output, gzipped; "" = none
	ContextURL   string // build context tar.gz; "" = none
	Dockerfile   string // slash path in the context; "" = none
	Platform     string // "linux/amd64"; "" = the sandbox's own
	SourceDigest string // "sha256:<hex>" over the sources; "" = none
	ImageDigest  string // registry digest; "" = none
}

// Type returns "docker_image".
func (d *DockerImage) Type() string { return TypeDockerImage }

// Document implements Artifact.
func (d *DockerImage) Document() *doc.Object {
	return d.open(TypeDockerImage).Set("description", d.Description).Set("image_name", d.Image).
		Set("tar_gz_s3_url", textOrNull(d.TarURL)).Set("build_context_s3_url", textOrNull(d.ContextURL)).
		Set("dockerfile_path", textOrNull(d.Dockerfile)).Set("platform", textOrNull(d.Platform)).
		Set("source_digest", textOrNull(d.SourceDigest)).Set("image_digest", textOrNull(d.ImageDigest)).
		Set("tar_gz_object_url", textOrNull(d.TarURL)).Set("build_context_object_url", textOrNull(d.ContextURL))
}

// Custom is an artifact of a type that a deployment registered: its document is kept as it is.
type Custom struct {
	head
	typ  string
	body *doc.Object
}

// Type returns the registered type.
func (c *Custom) Type() string { return c.typ }

// Document implements Artifact. The caller must not change it.
func (c *Custom) Document() *doc.Object { return c.body }

func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func pinned(r Ref) *doc.Object { return doc.Of("id", r.ID, "version", doc.Int(r.Version)) }

func pinnedMap(ms []NamedRef) *doc.Object {
	o := &doc.Object{}
	for _, m := range ms {
		o.Set(m.Name, pinned(m.Ref))
	}
	return o
}
