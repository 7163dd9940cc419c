# All that continuous integration does is done by these targets.
#
# What they build or measure lies in .dev/; the pinned tools lie in
# .dev/tools/<name>-<version>/, with a link to the present one in .dev/tools/bin/.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# pinned is the version that a tools module requires of a module.
pinned = $(shell awk '$$1 == "$(2)" { print $$2 }' $(1)/go.mod)

tools  := $(CURDIR)/.dev/tools
consul := $(tools)/consul-$(call pinned,tools/consul,github.com/hashicorp/consul)/consul
linter := $(tools)/golangci-lint-$(call pinned,tools,github.com/golangci/golangci-lint/v2)/golangci-lint
stackrun := go run ./internal/stack/stackrun --

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/scanner and bin/producer
	go build -trimpath -o bin/ ./cmd/scanner ./cmd/producer

.PHONY: demo
demo: brokers $(if $(CONSUL),consul) ## See 20,000 tasks arrive on time (KEEP=1 leaves it running, CONSUL=1 with Consul)
	go run ./test/demo $(if $(KEEP),-keep) $(if $(CONSUL),-consul)

.PHONY: test
test: servers ## Run all tests with the race detector on one set of real servers
	$(stackrun) go test -race -timeout 20m ./...

.PHONY: test-race
test-race: servers ## Run all tests three times in random order, to find races and flakes
	$(stackrun) go test -race -count 3 -shuffle on -timeout 60m ./...

.PHONY: cover
cover: servers ## Measure what the tests cover: a total here, the lines in .dev/cover.html
	@mkdir -p .dev
	$(stackrun) go test -coverpkg ./... -coverprofile .dev/cover.out -timeout 20m ./...
	@go tool cover -html .dev/cover.out -o .dev/cover.html
	@go tool cover -func .dev/cover.out | tail -n 1

.PHONY: lint
lint: $(linter) ## Check style, mistakes, and which package may import which
	$(linter) run ./...
	@if [ -f bench/go.mod ]; then cd bench && $(linter) run --config ../.golangci.yml ./...; fi

.PHONY: fmt
fmt: ## Format the code
	gofmt -w .

.PHONY: clean
clean: ## Remove what was built and measured, the pinned tools excepted
	rm -rf bin
	find .dev -mindepth 1 -maxdepth 1 ! -name tools -exec rm -rf {} + 2>/dev/null || true

.PHONY: servers
servers: brokers consul ## Install redis-server, rabbitmq-server and consul where they are missing

.PHONY: brokers
brokers: ## Install redis-server and rabbitmq-server where they are missing
	@missing=(); \
	type -P redis-server >/dev/null || missing+=(redis-server); \
	[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || type -P rabbitmq-server >/dev/null || missing+=(rabbitmq-server); \
	if [ $${#missing[@]} -eq 0 ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! type -P apt-get >/dev/null; then \
		echo "not installed: $${missing[*]}; on Debian and Ubuntu: sudo apt-get install $${missing[*]}" >&2; exit 1; \
	fi; \
	$(call apt-install,"$${missing[@]}")

# apt-install asks nothing and starts no service: the tests start servers of
# their own. Debian's policy-rc.d is what keeps packages from starting theirs.
define apt-install
	policy=/usr/sbin/policy-rc.d; \
	if [ ! -e $$policy ]; then \
		trap "rm -f $$policy" EXIT; \
		printf '#!/bin/sh\nexit 101\n' >$$policy; chmod 755 $$policy; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -q; \
	apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=120 $(1) </dev/null
endef

.PHONY: consul
consul: ## Build the pinned Consul once, in some minutes, unless one is on PATH
	@if path=$$(type -P consul); then \
		echo "consul: using $$path, which is on PATH"; \
	else \
		[ -x $(consul) ] || $(MAKE) --no-print-directory $(consul); \
		mkdir -p $(tools)/bin; ln -sfn ../$(notdir $(patsubst %/,%,$(dir $(consul))))/consul $(tools)/bin/consul; \
	fi

$(consul):
	@echo "consul: building $(notdir $(@D)) once; this takes some minutes"
	go build -C tools/consul -ldflags '-s -w' -o $@ github.com/hashicorp/consul

$(linter):
	@echo "golangci-lint: building $(notdir $(@D)) once; this takes some minutes"
	go build -C tools -ldflags '-s -w' -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
