package agents

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"agentenv/agent/objects"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// loaded makes a skill of each command-line tool and file set that an earlier step put into the agent.
func (a *addSkills) loaded(r *task.Run) ([]objects.Skill, error) {
	var out []objects.Skill
	add := func(name, description, body string) error {
		text, err := skillText(doc.Of("name", name, "description", description, "body", body))
		out = append(out, objects.Skill{Name: name, Description: description, Text: text})
		return err
	}
	for _, id := range a.clis {
		installed, _ := r.Metadata("installed_clis", a.agent, id).(*doc.Object)
		command, at := installed.Str("command_name"), installed.Str("install_path")
		if command == "" || at == "" {
			return nil, fault.New(fault.Invalid, "the command-line tool %s is not installed in the agent %q; a load_artifact step does that", id, a.agent).WithClass("RuntimeError")
		}
		err := add(toolName(command), fmt.Sprintf("Work with the command-line tool %s", command),
			fmt.Sprintf("The command-line tool %s is installed as `%s`.\n\nRun `%s --help` first: it lists the commands, and `--help` behind a command shows what that takes. What it prints is JSON.", command, at, at))
		if err != nil {
			return nil, err
		}
	}
	for _, id := range a.sets {
		at := a.loadedAt(r, id)
		if at == "" {
			return nil, fault.New(fault.Invalid, "the file set %s is not loaded into the agent %q; a load_artifact step does that", id, a.agent).WithClass("RuntimeError")
		}
		if err := add(setName(id), fmt.Sprintf("Find the files of %s", path.Base(id)), fmt.Sprintf("The files of %s are in the folder `%s`.", path.Base(id), at)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// loadedAt returns the folder that a file set was loaded into last, "" when it was not.
func (a *addSkills) loadedAt(r *task.Run, id string) string {
	list, _ := r.Metadata("loaded_file_artifact_universes").([]any)
	for _, v := range slices.Backward(list) {
		if o, _ := v.(*doc.Object); o.Str("id") == id && o.Str("agent_name") == a.agent {
			return o.Str("destination_path")
		}
	}
	return ""
}

var unnamed = regexp.MustCompile(`[^a-z0-9]+`)

// slug makes a part of a skill's name of any text, at most most characters long.
func slug(s string, most int) string {
	s = strings.Trim(unnamed.ReplaceAllString(strings.ToLower(s), "-"), "-")
	return strings.TrimRight(s[:min(len(s), most)], "-")
}

func toolName(command string) string {
	s := slug(command, 60)
	if s == "" {
		s = "tool"
	}
	return s + "-cli"
}

func setName(id string) string {
	sum := sha256.Sum256([]byte(id))
	name := hex.EncodeToString(sum[:6]) + "-files"
	if s := slug(path.Base(id), 45); s != "" {
		return s + "-" + name
	}
	return name
}
