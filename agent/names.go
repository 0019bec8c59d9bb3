package agent

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentenv/fault"
	"agentenv/store"
)

// maxID is how long the id of an agent outside the @local namespace may be, in bytes: objects and images are named after it.
const maxID = 512

// CheckID refuses (Invalid) an id that Put would refuse: what the store cannot take, and what cannot be part of the names of objects and images or
// would not show when it is printed. It reads nothing.
func (d *Documents) CheckID(id string) error {
	if store.IsLocal(id) {
		if err := store.CheckAuthoredID(id); err != nil {
			return err
		}
	} else if why := idProblem(id); why != "" {
		return fault.New(fault.Invalid, "an agent cannot have the id %s: %s", short(id), why)
	}
	return d.agents.Store.CheckID(id)
}

func idProblem(id string) string {
	switch {
	case strings.TrimSpace(id) == "":
		return "it is empty"
	case !utf8.ValidString(id):
		return "it is no UTF-8"
	case len(id) > maxID:
		return fmt.Sprintf("it is %d bytes long, and %d is the most", len(id), maxID)
	case strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "it holds a character that cannot be printed"
	}
	for part := range strings.SplitSeq(id, "/") {
		switch {
		case part == "" || part == "." || part == "..":
			return `a part between slashes is empty, "." or ".."`
		case strings.TrimSpace(part) != part:
			return "a part begins or ends with a space"
		}
	}
	return ""
}

// VariableProblem says why a container's environment cannot have a variable of this name, "" when it can.
func VariableProblem(name string) string {
	switch {
	case name == "":
		return "a variable needs a name"
	case strings.ContainsAny(name, "=\x00") || !utf8.ValidString(name):
		return fmt.Sprintf("no variable can be named %s: = and NUL cannot be part of its name", short(name))
	}
	return ""
}

// short quotes what somebody wrote, cut to a length that fits a line.
func short(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
