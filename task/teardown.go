package task

import (
	"context"

	"agentenv/store/doc"
)

// Teardown ends what runs deployed; the program fills it from its manager of sandboxes. Safe for concurrent use.
type Teardown interface {
	// Teardown ends everything that a run deployed, by its recorded context (nil when it has none) and what is known of it elsewhere.
	// It never fails: what is still up is in the report. It returns early, with the rest left, when ctx ends.
	Teardown(ctx context.Context, instance string, context *doc.Object) TeardownReport
	// Describe returns what a run deployed that is still up, with where it can be reached, without ending it.
	Describe(ctx context.Context, instance string, context *doc.Object) []KeptSandbox
	SandboxKeeper
}

// TeardownReport is what became of one run's sandboxes.
type TeardownReport struct {
	Ended []SandboxReport
	Left  []SandboxReport // still up
}

// SandboxReport is one sandbox in a report.
type SandboxReport struct {
	ID       string `json:"id"`
	Provider string `json:"provider"`
	Folder   string `json:"folder,omitempty"` // its folder on this machine, if any
	Why      string `json:"why,omitempty"`    // why it is still up
}

// KeptSandbox is one sandbox that stays up, and the record that it stands behind.
type KeptSandbox struct {
	SandboxReport
	Record    string      // "sandbox box"
	Endpoints [][2]string // name and address: {"folder", "/…"}, {"port 80", "http://…"}
}
