// Package examples holds the bundles that ship in the program.
package examples

import "embed"

// FS holds one folder a bundle.
//
//go:embed all:hello all:container-files all:echo all:model
var FS embed.FS

// Distribution is the name that the ids of the shipped bundles begin with: @local/<Distribution>/<bundle>.
const Distribution = "agentenv-framework"

// BaseImage is the public image that the shipped images build on.
const BaseImage = "python:3.12-slim-bookworm"
