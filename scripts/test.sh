#!/usr/bin/env bash
# Every check and test. Stops at the first part that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${AGENT_ENV_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/agent-env-test}"
export AGENT_ENV_TEST_CACHE="$cache"

part() { printf '\n== %s (%ss so far)\n' "$*" "$SECONDS"; }

part "set-up"
bash scripts/setup.sh packages engine reference
export AGENT_ENV_REFERENCE="$cache/reference/bin/agent-env"

part "builds: static for this machine, linux/arm64, darwin/arm64"
CGO_ENABLED=0 go build -trimpath -o bin/agent-env ./cmd/agent-env
CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -o /dev/null ./cmd/agent-env
CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build -o /dev/null ./cmd/agent-env

part "lint"
bash scripts/lint.sh

part "all tests, those that need nothing among them, with the race detector"
CGO_ENABLED=1 go test -race -tags integration -timeout 20m ./...

part "traces to the OpenTelemetry collector's receiver, a module of its own"
(cd test/otlp && go vet ./... && go test ./...)
