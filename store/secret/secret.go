// Package secret is the portable type of secret stores, which stand behind `secret:` references.
package secret

import "context"

// Store looks secrets up by name. Safe for concurrent use.
type Store interface {
	// Get returns the value and whether there is one; an empty string is a value. Errors never hold a value.
	Get(ctx context.Context, name string) (string, bool, error)
}
