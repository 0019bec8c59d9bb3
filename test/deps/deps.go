// Package deps keeps requirements until every room stands.
package deps

import (
	_ "github.com/bmatcuk/doublestar/v4"
	_ "github.com/dlclark/regexp2"
	_ "github.com/docker/cli/cli/config"
	_ "github.com/goccy/go-yaml"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/go-containerregistry/pkg/registry"
	_ "github.com/google/go-containerregistry/pkg/v1/remote"
	_ "github.com/moby/buildkit/client"
	_ "github.com/moby/buildkit/session/auth/authprovider"
	_ "github.com/moby/moby/client"
	_ "github.com/moby/patternmatcher"
	_ "github.com/pelletier/go-toml/v2"
	_ "github.com/spf13/cobra"
	_ "github.com/tonistiigi/fsutil"
	_ "github.com/vbauerster/mpb/v8"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "golang.org/x/text/unicode/norm"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
)
