#!/usr/bin/env bash
# The formatter, vet, and golangci-lint over the whole tree.
set -euo pipefail
cd "$(dirname "$0")/.."
unformatted=$(gofmt -l $(git ls-files --cached --others --exclude-standard '*.go'))
[ -z "$unformatted" ] || { printf 'not formatted (run gofmt -w):\n%s\n' "$unformatted"; exit 1; }
go vet ./...
go vet -tags integration ./...
lint="${GOLANGCI_LINT:-}"
if [ -z "$lint" ]; then
  lint="$(go env GOPATH)/bin/golangci-lint"
  version=$(sed -n 's/^LINT *:= .*@v//p' Makefile)
  if ! "$lint" version 2>/dev/null | grep -qF "$version"; then
    GOBIN="$(dirname "$lint")" go install "$(sed -n 's/^LINT *:= *//p' Makefile)"
  fi
fi
"$lint" run --build-tags integration ./...
