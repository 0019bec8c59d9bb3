package agents

import (
	"strings"
	"unicode/utf8"

	"agentenv/fault"
)

// How long a prompt_id may be, in bytes: objects are kept under names that hold it, where a part between slashes has 255 and a whole name 1024.
const (
	maxPromptID     = 512
	maxPromptIDPart = 240
)

// checkPromptID refuses a prompt_id under which nothing can be kept.
func checkPromptID(id string) error {
	why := ""
	parts := strings.Split(id, "/")
	for _, part := range parts {
		if len(part) > maxPromptIDPart {
			why = "has a part longer than 240 bytes"
		}
	}
	for _, part := range parts[1:] {
		if part == "." || part == ".." {
			why = "has a part . or .., which would lead elsewhere"
		}
	}
	switch {
	case strings.ContainsRune(id, 0):
		why = "holds a NUL"
	case !utf8.ValidString(id):
		why = "holds half of a surrogate pair, which is no character"
	case len(id) > maxPromptID:
		why = "is longer than 512 bytes"
	}
	if why == "" {
		return nil
	}
	return fault.New(fault.Invalid, "prompt_id %s; trajectories are kept under its name", why)
}
