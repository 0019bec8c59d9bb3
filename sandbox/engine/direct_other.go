//go:build !linux

package engine

import (
	"context"
	"os"

	"agentenv/sandbox/helper/wire"
)

// openDirect returns nil: containers do not run on this system itself.
func (c *Container) openDirect(context.Context, wire.Offer, int) *os.File { return nil }
