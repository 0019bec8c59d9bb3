package a2a

import (
	"context"
	"os"
	"path/filepath"

	"agentenv/fault"
	"agentenv/protocol/transfer"
)

// SkillBundle is a skill whose files are read by grants.
type SkillBundle struct {
	Name, Description string
	MaxTotalBytes     int64
	Files             []SkillFile // one of them is SKILL.md
}

// SkillFile is one file of a bundle; Path is relative, with slashes.
type SkillFile struct {
	Path   string
	Object transfer.ReadObject
}

// Download reads all files into a folder, which is made. A transfer that fails is a *transfer.Error; what came before it stays there.
func (b SkillBundle) Download(ctx context.Context, client *transfer.Client, dir string) error {
	for _, f := range b.Files {
		target := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fault.Wrap(fault.Internal, err, "the skill %q", b.Name)
		}
		if _, err := client.Download(ctx, f.Object, target); err != nil {
			return err
		}
	}
	return nil
}

type skillBundle struct {
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Bundle      bundleFiles `json:"skill_bundle"`
}

type bundleFiles struct {
	MaxTotalBytes int64        `json:"max_total_bytes" agent:"strict,min=1"`
	Files         []bundleFile `json:"files"`
}

type bundleFile struct {
	Path   string     `json:"path"`
	Object ReadObject `json:"object"`
}

// Validate refuses names that are no name of a folder.
func (b *skillBundle) Validate() error { return skillName(b.Name) }

// Validate refuses files that cannot all be written, a bundle without its SKILL.md, and more bytes than it says.
func (b *bundleFiles) Validate() error {
	seen, left := map[string]bool{}, b.MaxTotalBytes
	for _, f := range b.Files {
		if !transfer.Relative(f.Path) {
			return fault.New(fault.Invalid, "the path of a file of a skill must be relative, without empty, '.' and '..' segments and without backslashes")
		}
		if seen[f.Path] {
			return fault.New(fault.Invalid, "two files of a skill have the same path")
		}
		seen[f.Path] = true
		if left -= f.Object.MaxBytes; left < 0 {
			return fault.New(fault.Invalid, "the files of a skill may have more bytes together than max_total_bytes")
		}
	}
	if !seen["SKILL.md"] {
		return fault.New(fault.Invalid, "a skill needs a file SKILL.md")
	}
	return nil
}

func (b skillBundle) bundle() SkillBundle {
	out := SkillBundle{Name: b.Name, Description: b.Description, MaxTotalBytes: b.Bundle.MaxTotalBytes}
	for _, f := range b.Bundle.Files {
		out.Files = append(out.Files, SkillFile{f.Path, f.Object.ReadObject})
	}
	return out
}
