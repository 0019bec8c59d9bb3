#!/bin/sh
# Builds the helper for every architecture, the same bytes everywhere with the toolchain that go.mod names. The first argument is the
# folder to write to; the default is the committed one.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/bin}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$here"
for arch in amd64 arm64; do
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOAMD64=v1 GOARM64=v8.0 GOFLAGS= GOEXPERIMENT= GOTOOLCHAIN=local \
		go build -trimpath -buildvcs=false -ldflags "-s -w -buildid=" -o "$out/agentenv-helper-linux-$arch" ./cmd/agentenv-helper
	gzip -9 -n -c "$out/agentenv-helper-linux-$arch" > "$out/agentenv-helper-linux-$arch.gz"
	rm "$out/agentenv-helper-linux-$arch"
done
