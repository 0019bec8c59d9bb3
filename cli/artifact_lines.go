package cli

import (
	"fmt"
	"io"
	"strings"

	"agentenv/artifact"
)

// className is what messages call the artifacts of a type.
func className(typ string) string {
	switch typ {
	case artifact.TypeUniverse:
		return "FileArtifactUniverse"
	case artifact.TypeSkill:
		return "SkillArtifact"
	case artifact.TypeCLI:
		return "CliArtifact"
	case artifact.TypeEnvironment:
		return "EnvironmentArtifact"
	case artifact.TypeEnvironmentUniverse:
		return "EnvironmentUniverseArtifact"
	}
	return "FileArtifact"
}

func (a *App) fetching(class string, ref artifact.Ref) {
	version := "latest"
	if ref.Version > 0 {
		version = fmt.Sprint(ref.Version)
	}
	fmt.Fprintf(a.Stdout, "Fetching %s: id=%s version=%s...\n", class, ref.ID, version)
}

// foundDetail is what a line says of an artifact besides id and version.
func foundDetail(x artifact.Artifact, files int) string {
	switch x := x.(type) {
	case *artifact.Skill:
		return fmt.Sprintf("spec_version=%s name=%s", x.SpecVersion, x.Name)
	case *artifact.CLI:
		return fmt.Sprintf("command_name=%s entrypoint=%s", x.Command, x.Entrypoint)
	case *artifact.EnvironmentUniverse:
		var envs, meta []string
		for _, r := range x.Environments {
			envs = append(envs, fmt.Sprintf("'%s:%d'", r.ID, r.Version))
		}
		for _, m := range x.Metadata {
			meta = append(meta, fmt.Sprintf("'%s': '%s:%d'", m.Name, m.Ref.ID, m.Ref.Version))
		}
		metadata := "None"
		if len(meta) > 0 {
			metadata = "{" + strings.Join(meta, ", ") + "}"
		}
		return fmt.Sprintf("environment_artifacts=[%s] metadata=%s", strings.Join(envs, ", "), metadata)
	}
	return fmt.Sprintf("file_count=%d", files)
}

// ordered prints one line for each member in the order of the members, whatever order they are done in.
type ordered struct {
	out     io.Writer
	counted bool // each line begins with its number
	members []artifact.Member
	ready   map[string]string // lines that wait for those before them
	next    int
}

func newOrdered(out io.Writer, members []artifact.Member) *ordered {
	return &ordered{out: out, members: members, ready: map[string]string{}}
}

// print takes the line of a member that is done. It is called one at a time.
func (o *ordered) print(m artifact.Member, line string) {
	o.ready[m.Name] = line
	for o.next < len(o.members) {
		name := o.members[o.next].Name
		line, ok := o.ready[name]
		if !ok {
			return
		}
		delete(o.ready, name)
		o.next++
		if o.counted {
			line = fmt.Sprintf("  [%d/%d] %s", o.next, len(o.members), line)
		}
		fmt.Fprint(o.out, line)
	}
}
