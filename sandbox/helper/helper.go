// Package helper holds the program that agent-env brings into containers (cmd/agentenv-helper) as embedded binaries, so
// that a plain go build needs no other step. Rebuild them with build.sh after a change below this folder.
package helper

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"strings"

	"agentenv/fault"
)

//go:embed bin/*.gz
var binaries embed.FS

const maxBinary = 16 << 20

// Binary returns the helper for a Linux architecture ("amd64", "arm64", or an engine's name for them: "x86_64",
// "aarch64") and the sha256 of it in hex. Another architecture is an Unsupported error. Each call unpacks anew.
func Binary(arch string) (program []byte, digest string, err error) {
	name, ok := map[string]string{"amd64": "amd64", "x86_64": "amd64", "arm64": "arm64", "aarch64": "arm64"}[strings.ToLower(arch)]
	if !ok {
		return nil, "", fault.New(fault.Unsupported, "the container engine runs on %q; agent-env's helper exists for amd64 and arm64 only", arch)
	}
	packed, err := packedFor(name)
	if err != nil {
		return nil, "", err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, "", err
	}
	program, err = io.ReadAll(io.LimitReader(z, maxBinary))
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(program)
	return program, hex.EncodeToString(sum[:]), nil
}

func packedFor(arch string) ([]byte, error) {
	return binaries.ReadFile("bin/agentenv-helper-linux-" + arch + ".gz")
}
