package artifact

import (
	"fmt"

	"agentenv/fault"
	"agentenv/store/doc"
)

// decode builds the typed form of a stored document. d's type is canonical already.
func (s *Store) decode(d *doc.Object) (Artifact, error) {
	version, _ := d.Int("version")
	h := head{id: d.Str("id"), version: version}
	r := &reader{d: d, h: h}
	typ := s.canonical(d.Str("type"))
	var a Artifact
	switch typ {
	case TypeFile:
		a = &File{head: h, Description: d.Str("description"), Filename: r.need("filename"), ContentType: d.Str("content_type"),
			URL: r.needDual("s3_url", "object_url")}
	case TypeUniverse:
		a = &Universe{head: h, Refs: r.refMap("file_artifact_refs"), IDs: r.idMap("file_artifact_ids"),
			Prefix: r.dual("bundle_s3_url", "bundle_object_url")}
	case TypeSkill:
		a = &Skill{head: h, FilesID: r.need("skill_files_id"), URL: r.needDual("skill_s3_url", "skill_object_url"),
			SpecVersion: d.Str("agent_skills_spec_version"), Name: r.need("skill_name"), Description: d.Str("description"),
			License: d.Str("license"), Compatibility: d.Str("compatibility"), AllowedTools: d.Str("allowed_tools"),
			Metadata: d.Obj("skill_metadata")}
	case TypeCLI:
		v, _ := d.Int("env_version")
		a = &CLI{head: h, FilesID: r.need("cli_files_id"), URL: r.needDual("cli_s3_url", "cli_object_url"),
			Entrypoint: r.need("entrypoint"), Command: r.need("command_name"), EnvID: d.Str("env_id"), EnvVersion: v}
	case TypeEnvironment:
		e := &Environment{head: h, Name: r.needDual("service_name", "environment_name"), LegacyFile: d.Str("file_artifact_id")}
		if v := d.Value("file_artifact_ref"); v != nil {
			ref := r.ref("file_artifact_ref", v)
			e.File, e.LegacyFile = &ref, ""
		}
		a = e
	case TypeEnvironmentUniverse:
		u := &EnvironmentUniverse{head: h, Metadata: r.refMap("metadata_refs")}
		refs := d.Arr("service_artifact_refs")
		if refs == nil {
			refs = d.Arr("environment_artifact_refs")
		}
		for i, v := range refs {
			u.Environments = append(u.Environments, r.ref(fmt.Sprintf("environment_artifact_refs[%d]", i), v))
		}
		if len(u.Environments) == 0 {
			for _, v := range d.Arr("service_artifact_ids") {
				if id, ok := v.(string); ok {
					u.LegacyIDs = append(u.LegacyIDs, id)
				}
			}
		}
		if u.Metadata == nil {
			u.LegacyMetadata = r.idMap("metadata")
		}
		a = u
	case TypeDockerImage:
		a = &DockerImage{head: h, Description: d.Str("description"), Image: r.need("image_name"),
			TarURL: r.dual("tar_gz_s3_url", "tar_gz_object_url"), ContextURL: r.dual("build_context_s3_url", "build_context_object_url"),
			Dockerfile: d.Str("dockerfile_path"), Platform: NormalizePlatform(d.Str("platform")),
			SourceDigest: d.Str("source_digest"), ImageDigest: d.Str("image_digest")}
	default:
		if !s.custom[typ] {
			return nil, fault.New(fault.Unsupported, "artifact %s has the type %q, which this program does not know: register it under "+
				"[artifacts] impls, or give its new name under [artifacts] type_aliases", refText(h), d.Str("type"))
		}
		body := d.Clone().Set("type", typ)
		body.Delete("created_at_utc")
		body.Delete("_id")
		a = &Custom{head: h, typ: typ, body: body}
	}
	if r.err != nil {
		return nil, r.err
	}
	return a, nil
}

func refText(h head) string { return fmt.Sprintf("%s v%d", h.id, h.version) }

// reader takes the fields of one document apart and keeps the first error.
type reader struct {
	d   *doc.Object
	h   head
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fault.New(fault.Invalid, "artifact %s is malformed: %s", refText(r.h), fmt.Sprintf(format, args...))
	}
}

func (r *reader) need(key string) string {
	s, ok := r.d.Value(key).(string)
	if !ok || s == "" {
		r.fail("it has no text under %q", key)
	}
	return s
}

// dual reads a field that has two spellings; the legacy one wins where they differ.
func (r *reader) dual(legacy, neutral string) string {
	if s := r.d.Str(legacy); s != "" {
		return s
	}
	return r.d.Str(neutral)
}

func (r *reader) needDual(legacy, neutral string) string {
	s := r.dual(legacy, neutral)
	if s == "" {
		r.fail("it has no text under %q or %q", neutral, legacy)
	}
	return s
}

func (r *reader) ref(where string, v any) Ref {
	o, _ := v.(*doc.Object)
	n, ok := o.Int("version")
	if o.Str("id") == "" || !ok || n < 1 {
		r.fail("%s is no pinned reference {id, version ≥ 1}", where)
	}
	return Ref{ID: o.Str("id"), Version: n}
}

func (r *reader) refMap(key string) []NamedRef {
	o := r.d.Obj(key)
	if o == nil {
		return nil
	}
	out := make([]NamedRef, 0, o.Len())
	for _, k := range o.Keys() {
		out = append(out, NamedRef{k, r.ref(key+"["+k+"]", o.Value(k))})
	}
	return out
}

func (r *reader) idMap(key string) []NamedRef {
	o := r.d.Obj(key)
	if o == nil {
		return nil
	}
	out := make([]NamedRef, 0, o.Len())
	for _, k := range o.Keys() {
		id, _ := o.Value(k).(string)
		if id == "" {
			r.fail("%s[%s] is no id", key, k)
		}
		out = append(out, NamedRef{k, Ref{ID: id}})
	}
	return out
}
