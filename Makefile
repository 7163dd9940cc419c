# Continuous integration runs only these targets.
#
# Their measurements are in .dev/. The pinned tools are built once per machine, not
# once per clone: in duefleet/tools/<name>-<version>/ of the user's cache folder. This
# clone links to them in .dev/bin/.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# pinned is the version of a module that a tools module requires.
pinned = $(shell awk 'NF > 1 && $$1 == "$(2)" { print $$2 }' $(1)/go.mod)

cache  := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/duefleet
tools  := $(cache)/tools
links  := $(CURDIR)/.dev/bin
logs   := $(CURDIR)/.dev/tests
consul := $(tools)/consul-$(call pinned,tools/consul,github.com/hashicorp/consul)/consul
gotestsum := $(tools)/gotestsum-$(call pinned,tools,gotest.tools/gotestsum)/gotestsum
linter := $(tools)/golangci-lint-$(call pinned,tools,github.com/golangci/golangci-lint/v2)/golangci-lint
sbom := $(tools)/cyclonedx-gomod-$(call pinned,tools/release,github.com/CycloneDX/cyclonedx-gomod)/cyclonedx-gomod
vale := $(tools)/vale-$(call pinned,tools/prose,github.com/vale-cli/vale/v3)/vale
# checkers are tools that read the files in deploy/, as operators' tools do. The name of
# their folder is a checksum of their sources.
checkers := $(tools)/deploy-$(shell cat tools/deploy/go.* tools/deploy/kinds tools/deploy/*/*.go | cksum | cut -d ' ' -f 1)

# Without their folder in them, compiled packages are shared by all clones on a machine.
# Results of tests are not: every run runs all of them, hence -count 1.
export GOFLAGS := -trimpath

# compile trades memory for time: with less garbage collection, all compilations on a new
# machine take about half as long and up to 1.5 GB.
compile := GOGC=400 go build

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/scanner and bin/producer
	$(compile) -o bin/ ./cmd/scanner ./cmd/producer

# The image's build has no .git (Containerfile.dockerignore), so it gets these values.
.PHONY: image
image: ## Build the container image with its version (DOCKER=podman IMAGE=registry/duefleet-scanner:tag)
	$(or $(DOCKER),docker) build -f deploy/container/Containerfile -t $(or $(IMAGE),duefleet-scanner) \
		--build-arg VERSION=$(or $(VERSION),$(shell git describe --tags --always --dirty)) \
		--build-arg COMMIT=$(shell git describe --exclude '*' --always --abbrev=40 --dirty) .

release := $(shell sed -n 's/^const Release = "\(.*\)"/\1/p' internal/cli/build.go)

.PHONY: release
release: $(sbom) ## Build static programs with checksums and SBOMs into dist/ (ARCHES='amd64 arm64' DIST=folder)
	@tools/release/build.sh $(sbom) $(release) $(or $(DIST),dist) $(or $(ARCHES),amd64 arm64)

.PHONY: demo
demo: ## Show 20,000 tasks arrive on time (KEEP=1 keeps it running with a console, CONSUL=1 uses Consul)
	@$(MAKE) --no-print-directory -j2 brokers demo-programs
	@$(if $(CONSUL),$(MAKE) --no-print-directory consul)
	@bin/demo $(if $(KEEP),-keep) $(if $(CONSUL),-consul)

.PHONY: demo-programs
demo-programs: installable
	@echo "building scanner, producer and demo: the first time this takes a minute or more"
	@$(compile) -ldflags '-s -w' -o bin/ ./cmd/scanner ./cmd/producer ./test/demo

.PHONY: pictures
pictures: test-tools ## Take the pictures of docs/console.md again
	@$(withservers) -- go test -count 1 -run '^TestPicturesOfTheDocs$$' ./internal/console -pictures

# The tests run in stages, each with fresh servers. Packages with whole fleets load the
# machine, so they run one after the other, in stage fleet. Stage single has all others that need
# servers. There, packages that mostly wait run beside one that computes, and those that take
# longest come first. Stage unit needs no server.
fleets  := test/e2e test/deploy test/demo
longest := internal/forward cmd/producer internal/console internal/scanner cmd/scanner test/machine \
	producer test/servers internal/shard internal/intake consumer internal/router internal/bulk internal/doctor

# with-tests lists the packages with tests, and which of them start servers. The model
# uses one goroutine per exploration, so it needs no race detector.
module := github.com/duefleet/duefleet
with-tests = $(shell go list -test -f '{{if .ForTest}}{{.ForTest}}{{end}}' ./... | sort -u)
serving    = $(shell go list -test -f '{{if .ForTest}}{{.ForTest}} {{.Deps}}{{end}}' ./... | awk '/duefleet\/test\/servers/ { print $$1 }' | sort -u)
stage-fleet  = $(addprefix $(module)/,$(fleets))
stage-single = $(addprefix $(module)/,$(longest)) $(filter-out $(stage-fleet) $(addprefix $(module)/,$(longest)),$(serving))
model        = $(module)/test/model
stage-unit   = $(filter-out $(serving) $(model),$(with-tests))

# run-stage runs packages. Its arguments are a name, the packages, flags, and a command
# that runs the tests. It prints the failures with their output, the time, and the
# slowest tests. With exec, a signal to make reaches that command, which ends the tests
# and their servers. go list compiles the packages before, on all cores. golangci-lint
# runs vet, so the tests don't run it again. Nobody debugs the binaries, and a third of linking
# is information for that.
define run-stage
	@mkdir -p $(logs); echo "== $(1)"; GOGC=400 go list -test -deps -export $(filter -race,$(3)) -f '' $(2) >/dev/null
	@exec $(4) $(gotestsum) --no-color --format standard-quiet --jsonfile $(logs)/$(1).json \
		--post-run-command "bash -c 'echo == $(1): \$$GOTESTSUM_ELAPSED, its slowest tests:; $(gotestsum) tool slowest --num 10 --jsonfile $(logs)/$(1).json'" \
		-- $(test-flags) $(3) $(2)
endef
test-flags  := -count 1 -vet off -ldflags=-w
withservers := $(links)/withservers

.PHONY: test
test: test-unit test-single test-fleet test-orders test-outbox test-bench ## Run all tests, in stages, on real servers

.PHONY: test-unit
test-unit: $(gotestsum) ## Run the tests that need no server
	$(call run-stage,model,$(model),-timeout 20m)
	$(call run-stage,unit,$(stage-unit),-race -timeout 20m)

.PHONY: test-single
test-single: test-tools postgres mariadb ## Run the tests of one program or package on real servers
	$(call run-stage,single,$(stage-single),-race -p 3 -timeout 30m,$(withservers) --)

.PHONY: test-fleet
test-fleet: test-tools deploy-tools $(sbom) ## Run the tests of whole fleets
	$(call run-stage,fleet,$(stage-fleet),-race -p 1 -timeout 40m,$(withservers) --)

# The packages that depend most on the servers, on the newest pair of make compat.
newest := $(addprefix $(module)/internal/,luascript shard router intake)

.PHONY: test-newest
test-newest: test-tools mmdebstrap ## Run the tests of scripts and of the intake on the newest Valkey and RabbitMQ (needs root and Debian)
	$(call run-stage,newest,$(newest),-race -p 2 -timeout 20m,test/compat/on.sh $(cache)/compat $(lastword $(pairs)) $(withservers) --)

# Its database driver is nobody's dependency who takes the libraries.
.PHONY: test-orders
test-orders: test-tools postgres ## Run the tests of examples/orders, a module of its own
	cd examples/orders && exec $(withservers) -- go test -race $(test-flags) -timeout 20m ./...

.PHONY: relay
relay: ## Build bin/duefleet-relay, the relay of the outbox
	$(compile) -C outbox -o ../bin/ ./cmd/duefleet-relay

.PHONY: test-outbox
test-outbox: test-tools postgres mariadb psycopg2 pymysql ## Run the tests of outbox, a module of its own
	cd outbox && exec $(withservers) -- go test -race $(test-flags) -timeout 20m ./...

.PHONY: test-bench
test-bench: bench-go bench-program ## Run each benchmark once, so that all of them keep working
	cd bench && go test -count 1 ./...

.PHONY: test-race
test-race: test-tools deploy-tools ## Run all tests three times in random order, to find races and flakes
	$(withservers) -- go test -race -p 1 -count 3 -shuffle on -timeout 120m ./...

# Measurements run alone: no other test, no race detector.
.PHONY: measure
measure: test-tools postgres mariadb ## Check the limits for lateness, rates and memory, on an otherwise idle machine
	$(withservers) -- go test -tags measure -p 1 -count 1 -v -timeout 60m -run '^TestMeasure' ./...
	cd outbox && $(withservers) -- go test -tags measure -count 1 -v -timeout 20m -run '^TestMeasure' .
	PATH="$$PATH:$(links)" go test -tags chaos -count 1 -v -timeout 60m -run 'NarrowNetwork$$' ./test/chaos

.PHONY: model
model: ## Explore the protocol for changing M, large scopes included, in some minutes
	go test -count 1 -timeout 60m ./test/model -long

.PHONY: nightly
nightly: TOPICS ?= 200
nightly: chaos chaos-outbox cluster clients clients-newest compat measure bench model test-race ## Run everything that takes too long for every change

# The stages' tools are built first, so that a signal to make reaches the tests and their
# servers.
.PHONY: test-tools
test-tools: servers $(gotestsum) withservers pika chromium

.PHONY: withservers
withservers:
	@$(compile) -o $(links)/withservers ./test/servers/run

# The options of make chaos: seed, length and choice of tests.
SOAK := 2m
SEED := 0

.PHONY: chaos
chaos: servers compiler ## Inject every fault, then mix faults at random (SOAK=2m SEED=n ONLY=TestSoak TOPICS=200 UPDATE=1)
	PATH="$$PATH:$(links)" go test -tags chaos -count 1 -v -timeout 90m -run '$(or $(ONLY),.)' ./test/chaos \
		-skip '^TestCluster|NarrowNetwork$$' -soak $(SOAK) -seed $(SEED) $(if $(TOPICS),-topics $(TOPICS)) $(if $(UPDATE),-update)

.PHONY: chaos-outbox
chaos-outbox: test-tools postgres mariadb ## Kill each part of the outbox again and again for SOAK, and check its ledger (SOAK=2m SEED=n)
	cd outbox && $(withservers) -- go test -count 1 -v -timeout 60m -parallel 1 -run '^TestLedger$$' ./inbox \
		-length $(SOAK) -seed $(SEED)

# A library in C replaces the C library's clock, so that tests can set Redis's clock.
.PHONY: compiler
compiler:
	@type -P cc >/dev/null || { $(call apt-install,gcc libc6-dev); }

.PHONY: clients
clients: brokers client-libraries withservers $(if $(PAIR),mmdebstrap) ## Delay messages with clients in Python, Node.js, PHP and Java, and with Celery and Symfony; fails if one can't be installed (PAIR=sid-redis)
	$(if $(PAIR),test/compat/on.sh $(cache)/compat $(PAIR)) $(withservers) -- go test -tags clients -count 1 -v -timeout 20m ./test/clients

.PHONY: clients-newest
clients-newest:
	$(MAKE) clients PAIR=sid-redis

.PHONY: client-libraries
client-libraries: # for test/clients
	@missing=(); \
	/usr/bin/python3 -c 'import pika' 2>/dev/null || missing+=(python3-pika); \
	/usr/bin/python3 -c 'import celery, kombu' 2>/dev/null || missing+=(python3-celery python3-kombu); \
	/usr/bin/python3 -c 'import certifi, dateutil, six, urllib3' 2>/dev/null || missing+=(python3-certifi python3-dateutil python3-six python3-urllib3); \
	php -r 'exit(class_exists("AMQPConnection") ? 0 : 1);' >/dev/null 2>&1 || missing+=(php-cli php-amqp); \
	[ -e /usr/share/php/Symfony/Component/Messenger/Bridge/Amqp/autoload.php ] || missing+=(php-symfony-messenger php-symfony-amqp-messenger); \
	[ -e /usr/share/java/amqp-client.jar ] || missing+=(librabbitmq-client-java); \
	[ -e /usr/share/java/slf4j-nop.jar ] || missing+=(libslf4j-java); \
	type -P javac >/dev/null || missing+=(default-jdk-headless); \
	type -P node >/dev/null || missing+=(nodejs); \
	type -P npm >/dev/null || missing+=(npm); \
	if [ $${#missing[@]} -gt 0 ]; then \
		[ "$$(id -u)" = 0 ] && type -P apt-get >/dev/null || \
			{ echo "not installed: $${missing[*]}; on Debian and Ubuntu: sudo apt-get install $${missing[*]}" >&2; exit 1; }; \
		$(call apt-install,"$${missing[@]}"); \
	fi
	@for folder in node openapi; do (cd test/clients/$$folder && { cmp -s package-lock.json node_modules/.installed || \
		{ npm ci --no-audit --no-fund --loglevel error && cp package-lock.json node_modules/.installed; }; }); done

# several are the packages that use Redis; they also run on a cluster.
several := ./internal/luascript ./internal/shard ./internal/router ./producer ./consumer ./cmd/producer ./examples/... ./test/e2e

.PHONY: cluster
cluster: test-tools ## Run the tests on a Redis Cluster, and inject faults into clusters and sentinels (TOPICS=200 UPDATE=1)
	@failed=0; set -x; \
	$(withservers) -cluster -- go test -p 1 -count 1 -timeout 40m $(several) || failed=1; \
	go test -tags chaos -count 1 -v -timeout 60m -run '^TestRabbitMQCluster$$' ./test/servers || failed=1; \
	go test -tags chaos -count 1 -v -timeout 60m -run '^TestCluster' ./test/chaos -target cluster $(if $(TOPICS),-topics $(TOPICS)) $(if $(UPDATE),-update) || failed=1; \
	exit $$failed

# Each pair is a suite of Debian and a store of it, with that suite's RabbitMQ. The suites
# are kept; to get newer packages, remove their folder, which its first run names.
pairs  := trixie-redis trixie-valkey sid-redis sid-valkey
compat := ./internal/shard ./internal/router ./internal/forward ./internal/intake ./test/e2e

.PHONY: compat
compat: test-tools demo-programs mmdebstrap ## Run tests and the demo on newer Redis, Valkey and RabbitMQ, from newer suites of Debian (PAIR=sid-valkey)
	@PATH="$(links):$$PATH" exec test/compat/run.sh $(cache)/compat $(logs) $(gotestsum) $(or $(PAIR),$(pairs)) -- $(compat)

.PHONY: mmdebstrap
mmdebstrap: # unpacks another suite
	@type -P mmdebstrap >/dev/null || { \
		[ "$$(id -u)" = 0 ] && type -P apt-get >/dev/null || { echo "make compat needs root on Debian" >&2; exit 1; }; \
		$(call apt-install,mmdebstrap); \
	}

.PHONY: cover
cover: test-tools deploy-tools ## Measure the coverage of the tests: prints the total, lines in .dev/cover.html
	@mkdir -p .dev
	$(withservers) -- go test -p 1 -coverpkg ./... -coverprofile .dev/cover.out -timeout 40m ./...
	@go tool cover -html .dev/cover.out -o .dev/cover.html
	@go tool cover -func .dev/cover.out | tail -n 1

# ONLY=name,... chooses measures, which bin/bench -list shows. RUNS=3 also repeats the
# measures that normally run once, which takes ten minutes more.
.PHONY: bench
bench: servers bench-peers build bench-program ## Measure against limits and peers in half an hour, and write docs/benchmarks.md (ONLY=... RUNS=n)
	bin/bench -update $(if $(ONLY),-only $(ONLY)) $(if $(RUNS),-runs $(RUNS))

.PHONY: bench-quick
bench-quick: servers bench-peers build bench-program ## Run a tenth of make bench in five minutes, as a check that it works; write nothing (ONLY=...)
	bin/bench -quick $(if $(ONLY),-only $(ONLY))

.PHONY: bench-program
bench-program:
	$(compile) -C bench -o ../bin/bench .

# The Go benchmarks of the hot paths run once, so that all of them keep working. To
# compare two versions: make bench-go COUNT=10 >old.txt, the same with the other version
# to new.txt, and go -C tools tool benchstat ../old.txt ../new.txt.
.PHONY: bench-go
bench-go: brokers withservers ## Run the Go benchmarks of the hot paths once, or COUNT times with full length
	@$(withservers) -- go test -run '^$$' -bench . -benchmem $(if $(COUNT),-count $(COUNT),-benchtime 1x) \
		./internal/shard ./internal/forward ./producer ./internal/ndjson ./consumer

.PHONY: lint
lint: $(linter) prose ## Check style, mistakes, and which package may import which
	$(linter) run --allow-parallel-runners ./...
	@if [ -f bench/go.mod ]; then cd bench && $(linter) run --allow-parallel-runners --config ../.golangci.yml ./...; fi
	@cd outbox && $(linter) run --allow-parallel-runners --config ../.golangci.yml ./...
	@cd examples/orders && $(linter) run --allow-parallel-runners --config ../../.golangci.yml ./...

# Vale checks pages and comments with one configuration, and the programs' texts with the
# other. docs/reference is generated from the programs' texts.
.PHONY: prose
prose: $(vale) ## Check how the project writes English (ONLY='files' chooses, ARGS is for vale)
	@$(vale) --config tools/prose/comments.ini $(ARGS) $(or $(ONLY),$$(git ls-files '*.md' '*.go' ':!docs/reference'))
	@$(vale) --config tools/prose/messages.ini $(ARGS) $(if $(ONLY),$(filter-out %_test.go %.md,$(ONLY)) /dev/null,$$(git ls-files '*.go' ':!*_test.go' ':!test' ':!bench'))

.PHONY: fmt
fmt: ## Format the code
	gofmt -w .

.PHONY: clean
clean: ## Remove builds and measurements, but not the pinned tools
	rm -rf bin dist .dev

.PHONY: servers
servers: brokers consul ## Install redis-server, rabbitmq-server and consul if they are missing

# missing is a shell array of the brokers that are not installed.
define missing
	missing=(); \
	type -P redis-server >/dev/null || missing+=(redis-server); \
	[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || type -P rabbitmq-server >/dev/null || missing+=(rabbitmq-server)
endef

.PHONY: brokers
brokers: installable ## Install redis-server and rabbitmq-server if they are missing
	@$(missing); if [ $${#missing[@]} -gt 0 ]; then $(call apt-install,"$${missing[@]}"); fi

.PHONY: postgres
postgres: # for the tests of examples/orders, of outbox and of test/servers
	@type -P postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || { \
		[ "$$(id -u)" = 0 ] && type -P apt-get >/dev/null || \
			{ echo "not installed: postgresql; on Debian and Ubuntu: sudo apt-get install postgresql" >&2; exit 1; }; \
		$(call apt-install,postgresql); \
	}

.PHONY: mariadb
mariadb: # for the tests of outbox and of test/servers
	@type -P mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || { \
		[ "$$(id -u)" = 0 ] && type -P apt-get >/dev/null || \
			{ echo "not installed: mariadb-server; on Debian and Ubuntu: sudo apt-get install mariadb-server" >&2; exit 1; }; \
		$(call apt-install,mariadb-server); \
	}

# Missing peers are installed if possible. Otherwise the tables name them, and the rest
# is still measured.
.PHONY: bench-peers
bench-peers:
	@peers=(); \
	type -P beanstalkd >/dev/null || peers+=(beanstalkd); \
	type -P node >/dev/null || peers+=(nodejs); \
	type -P npm >/dev/null || peers+=(npm); \
	type -P postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || peers+=(postgresql); \
	if [ $${#peers[@]} -gt 0 ] && [ "$$(id -u)" = 0 ] && type -P apt-get >/dev/null; then \
		{ $(call apt-install,"$${peers[@]}"); } || echo "apt-get could not install $${peers[*]}" >&2; \
	fi
	@if type -P npm >/dev/null; then \
		cd bench/peers/bullmq && { cmp -s package-lock.json node_modules/.installed || \
			{ npm install --no-save --no-audit --no-fund --loglevel error && cp package-lock.json node_modules/.installed; }; }; \
	fi || echo "BullMQ: npm could not install it" >&2

.PHONY: installable
installable:
	@$(missing); \
	if [ $${#missing[@]} -gt 0 ] && { [ "$$(id -u)" != 0 ] || ! type -P apt-get >/dev/null; }; then \
		echo "not installed: $${missing[*]}; on Debian and Ubuntu: sudo apt-get install $${missing[*]}" >&2; exit 1; \
	fi

# apt-install asks nothing and starts no service, since the tests start their own
# servers. Debian's policy-rc.d keeps packages from starting services.
define apt-install
	policy=/usr/sbin/policy-rc.d; \
	if [ ! -e $$policy ]; then \
		trap "rm -f $$policy" EXIT; \
		printf '#!/bin/sh\nexit 101\n' >$$policy; chmod 755 $$policy; \
	fi; \
	echo "installing" $(1); \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq; \
	apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=120 $(1) </dev/null >/dev/null
endef

.PHONY: chromium
chromium: # for the tests of internal/console
	@type -P chromium >/dev/null || { \
		[ "$$(id -u)" = 0 ] && type -P apt-get >/dev/null || \
			{ echo "not installed: chromium; on Debian and Ubuntu: sudo apt-get install chromium" >&2; exit 1; }; \
		$(call apt-install,chromium); \
	}

.PHONY: pika psycopg2 pymysql
pika psycopg2 pymysql: # for the tests of examples/python and of duefleet-relay
	@/usr/bin/python3 -c 'import $@' 2>/dev/null || { [ "$$(id -u)" = 0 ] && type -P apt-get >/dev/null || exit 0; $(call apt-install,python3-$@); }

.PHONY: consul
consul: ## Build the pinned Consul once, in some minutes, unless one is on PATH
	@if path=$$(type -P consul); then \
		echo "consul: using $$path, which is on PATH"; \
	else \
		[ -x $(consul) ] || $(MAKE) --no-print-directory $(consul); \
		mkdir -p $(links); ln -sfn $(consul) $(links)/consul; \
	fi

$(consul):
	@echo "consul: building $(notdir $(@D)) once; this takes some minutes"
	$(compile) -C tools/consul -ldflags '-s -w' -o $@ github.com/hashicorp/consul

$(gotestsum):
	@echo "gotestsum: building $(notdir $(@D)) once"
	$(compile) -C tools -o $@ gotest.tools/gotestsum

$(linter):
	@echo "golangci-lint: building $(notdir $(@D)) once; this takes some minutes"
	$(compile) -C tools -ldflags '-s -w' -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(sbom):
	@echo "cyclonedx-gomod: building $(notdir $(@D)) once"
	$(compile) -C tools/release -ldflags '-s -w' -o $@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

# Vale needs a C compiler for its Go parser.
$(vale): | compiler
	@echo "vale: building $(notdir $(@D)) once; this takes a minute"
	$(compile) -C tools/prose -ldflags '-s -w' -o $@ github.com/vale-cli/vale/v3/cmd/vale

.PHONY: deploy-tools
deploy-tools: $(checkers)/schemas promtool systemd ## Build helm and the other tools that check deploy/ once, in some minutes
	@mkdir -p $(links); for tool in helm kubeconform compose schemas; do ln -sfn $(checkers)/$$tool $(links)/$$tool; done

$(checkers)/schemas:
	@echo "helm and kubeconform: building once; this takes some minutes"
	$(compile) -C tools/deploy -ldflags '-s -w' -o $(checkers)/ helm.sh/helm/v3/cmd/helm github.com/yannh/kubeconform/cmd/kubeconform ./compose
	go run -C tools/deploy ./schemas $@.part $$(for m in $$(<tools/deploy/kinds); do go mod download -json $$m | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p'; done)
	mv $@.part $@

# promtool takes longer to build than everything else, so it is extracted from Debian's
# package, without installing or starting that package.
.PHONY: systemd
systemd: # for systemd-analyze, which reads the unit
	@type -P systemd-analyze >/dev/null || { [ "$$(id -u)" = 0 ] && type -P apt-get >/dev/null || exit 0; $(call apt-install,systemd); }

.PHONY: promtool
promtool:
	@type -P promtool >/dev/null || [ -x $(tools)/promtool ] || { \
		type -P apt-get >/dev/null || { echo "promtool is not installed; it comes with Prometheus" >&2; exit 0; }; \
		echo "promtool: unpacking it from Debian's package"; \
		dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; chmod 755 $$dir; cd $$dir; \
		apt-get download -qq prometheus 2>/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get download -qq prometheus; }; \
		dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool; \
		mkdir -p $(tools); mv usr/bin/promtool $(tools)/promtool; \
	}
	@mkdir -p $(links); [ ! -x $(tools)/promtool ] || ln -sfn $(tools)/promtool $(links)/promtool
