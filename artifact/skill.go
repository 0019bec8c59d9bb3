package artifact

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"agentenv/fault"
	"agentenv/store/doc"
)

// SkillFile is the file that makes a folder a skill.
const SkillFile = "SKILL.md"

// maxSkillFile limits how much of a SKILL.md is read.
const maxSkillFile = 4 << 20

// Frontmatter is the head of a SKILL.md.
type Frontmatter struct {
	Name, Description                    string
	License, Compatibility, AllowedTools string            // "" = not given
	Metadata                             map[string]string // nil = not given
	keys                                 []string          // of Metadata, in the file's order
}

var skillName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// ParseSkill reads the text of a SKILL.md: the frontmatter and the body after it. id is the artifact's id, whose last segment must
// be the skill's name; "" = it is no artifact. Errors are Invalid and name the rule.
func ParseSkill(id string, text []byte) (*Frontmatter, string, error) {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "%s: %s", SkillFile, fmt.Sprintf(format, args...))
	}
	if !utf8.Valid(text) {
		return nil, "", bad("it is not UTF-8 text")
	}
	rest, ok := bytes.CutPrefix(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("---"))
	if !ok {
		return nil, "", bad("it must begin with a line of three dashes that opens the frontmatter")
	}
	rest = bytes.TrimPrefix(rest, []byte("\n"))
	head, body, closed := cutFrontmatter(string(rest))
	if !closed {
		return nil, "", bad("the frontmatter is not closed by a line of three dashes")
	}
	var m yaml.MapSlice
	if err := yaml.Unmarshal([]byte(head), &m); err != nil {
		return nil, "", bad("the frontmatter is no YAML mapping: %s", firstLine(err.Error()))
	}
	f := &Frontmatter{}
	for _, kv := range m {
		key, _ := kv.Key.(string)
		switch key {
		case "name", "description", "license", "compatibility", "allowed-tools":
			v, ok := kv.Value.(string)
			if !ok || strings.TrimSpace(v) == "" {
				return nil, "", bad("%s must be a text that is not empty", key)
			}
			*map[string]*string{"name": &f.Name, "description": &f.Description, "license": &f.License,
				"compatibility": &f.Compatibility, "allowed-tools": &f.AllowedTools}[key] = v
		case "metadata":
			mm, ok := kv.Value.(map[string]any)
			if !ok {
				return nil, "", bad("metadata must map texts to texts")
			}
			f.Metadata = make(map[string]string, len(mm))
			for k, v := range mm {
				t, ok := v.(string)
				if !ok {
					return nil, "", bad("metadata.%s must be a text; put it in quotes", k)
				}
				f.Metadata[k] = t
				f.keys = append(f.keys, k)
			}
		}
	}
	want := base(id)
	switch {
	case f.Name == "":
		return nil, "", bad("the frontmatter has no name")
	case !skillName.MatchString(f.Name) || f.Name[0] == '-' || f.Name[len(f.Name)-1] == '-' || strings.Contains(f.Name, "--"):
		return nil, "", bad("name %q must be 1 to 64 of a-z, 0-9 and single inner dashes", f.Name)
	case id != "" && f.Name != want:
		return nil, "", bad("name is '%s', and for the artifact %s it must be '%s'", f.Name, id, want)
	case f.Description == "":
		return nil, "", bad("the frontmatter has no description")
	case utf8.RuneCountInString(f.Description) > 1024:
		return nil, "", bad("description is longer than 1024 characters")
	case utf8.RuneCountInString(f.Compatibility) > 500:
		return nil, "", bad("compatibility is longer than 500 characters")
	}
	return f, strings.TrimLeft(body, "\n"), nil
}

// cutFrontmatter splits at the first line that is three dashes and optional spaces.
func cutFrontmatter(text string) (head, body string, ok bool) {
	for at := 0; at <= len(text); {
		end := strings.IndexByte(text[at:], '\n')
		line, next := text[at:], len(text)+1
		if end >= 0 {
			line, next = text[at:at+end], at+end+1
		}
		if strings.HasPrefix(line, "---") && strings.Trim(line[3:], " \t") == "" {
			return text[:at], text[min(next, len(text)):], true
		}
		at = next
	}
	return "", "", false
}

func firstLine(s string) string { s, _, _ = strings.Cut(strings.TrimSpace(s), "\n"); return s }

// PutSkill stores a skill of the given files, among them SKILL.md: bytes in one batch, then the files' universe and the skill in
// one transaction. Errors are Invalid, before anything is written, for a missing or malformed SKILL.md.
func (s *Store) PutSkill(ctx context.Context, id string, files []Source) (*Skill, error) {
	if err := checkSources(id, files); err != nil {
		return nil, err
	}
	f, err := skillHead(ctx, id, files)
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	ctx = scoped(ctx, id)
	if err := s.check(ctx, id, filesID(id)); err != nil {
		return nil, err
	}
	prefix, err := s.attempt(ctx, TypeSkill, id)
	if err != nil {
		return nil, err
	}
	written, types, err := s.upload(ctx, prefix, files)
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	return s.putSkill(ctx, id, f, prefixURL(written[0].URL, files[0].Name), members(filesID(id), files, written, types))
}

// PutSkillAt stores a skill over the objects that lie under a URL prefix; no bytes move.
func (s *Store) PutSkillAt(ctx context.Context, id, prefix string) (*Skill, error) {
	ctx = scoped(ctx, id)
	ms, err := s.existing(ctx, id, filesID(id), prefix)
	if err != nil {
		return nil, err
	}
	var f *Frontmatter
	for _, m := range ms {
		if m.name != SkillFile {
			continue
		}
		src := Source{Name: m.name, Open: func(ctx context.Context) (io.ReadCloser, error) { return s.objects.Open(ctx, m.file.URL) }}
		if f, err = skillHead(ctx, id, []Source{src}); err != nil {
			return nil, fault.At(err, "artifact %s", id)
		}
	}
	if f == nil {
		return nil, fault.New(fault.Invalid, "artifact %s: there is no %s under %s", id, SkillFile, prefix)
	}
	return s.putSkill(ctx, id, f, cleanPrefix(prefix), ms)
}

func (s *Store) putSkill(ctx context.Context, id string, f *Frontmatter, url string, ms []member) (*Skill, error) {
	k := &Skill{head: head{id: id}, FilesID: filesID(id), URL: url, SpecVersion: SkillSpecVersion, Name: f.Name,
		Description: f.Description, License: f.License, Compatibility: f.Compatibility, AllowedTools: f.AllowedTools}
	if f.Metadata != nil {
		k.Metadata = &doc.Object{}
		for _, key := range f.keys {
			k.Metadata.Set(key, f.Metadata[key])
		}
	}
	_, err := s.write(ctx, id, func(w *writer) (Artifact, error) {
		if _, err := w.universe(k.FilesID, url, ms); err != nil {
			return nil, err
		}
		return k, w.add(k)
	})
	if err != nil {
		return nil, fault.At(err, "artifact %s", id)
	}
	return k, nil
}

func skillHead(ctx context.Context, id string, files []Source) (*Frontmatter, error) {
	for _, src := range files {
		if src.Name != SkillFile {
			continue
		}
		r, err := src.Open(ctx)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		text, err := io.ReadAll(io.LimitReader(r, maxSkillFile+1))
		if err != nil {
			return nil, fault.At(err, "read %s", SkillFile)
		}
		if len(text) > maxSkillFile {
			return nil, fault.New(fault.Invalid, "%s is larger than %d MiB", SkillFile, maxSkillFile>>20)
		}
		f, _, err := ParseSkill(id, text)
		return f, err
	}
	return nil, fault.New(fault.Invalid, "a skill needs a %s", SkillFile)
}
