# make test is the one command that passes every test; see CONTRIBUTING.md.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.version=$(VERSION)
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: build test test-long quick lint bench helper clean

build: ## the program, static, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/agent-env ./cmd/agent-env

quick: ## the tests that need nothing
	$(GO) test ./...

test: ## everything: sets up what is missing, then every check and test with the race detector
	bash scripts/test.sh

test-long: ## kills runs at 200 random moments, in both modes; a quarter of an hour
	bash scripts/setup.sh packages engine
	AGENT_ENV_TEST_LONG=1 $(GO) test -tags integration -count=1 -timeout 60m -run TestKilledAnywhere ./test/e2e

lint: ## formatter, vet, golangci-lint
	bash scripts/lint.sh

bench: build ## the table of DESIGN: ours beside the reference and the limit, as ratios of one run
	bash scripts/setup.sh engine reference
	$(GO) run ./bench -program bin/agent-env

helper: ## rebuilds the helper binaries that are embedded
	bash sandbox/helper/build.sh

clean:
	rm -rf bin .cache
