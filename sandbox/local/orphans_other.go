//go:build !linux

package local

import (
	"time"

	"agentenv/sandbox/helper/proc"
)

func adoptOrphans() {}

// endOrphans does nothing: commands have no guards here.
func endOrphans(string, time.Duration) []proc.Process { return nil }
