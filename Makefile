# `make` alone lists the targets; a line with two hashes after one is its help.

GO          ?= go
FUZZTIME    ?= 10s
# Such as --listen=127.0.0.1:9090 --admin-listen=127.0.0.1:9091.
DEMOFLAGS   ?=
# Such as -json, or -rows=a,sparse, -rows=bcd or -rows=jobs for some of the rows.
BENCHFLAGS  ?=
# make chaos: the same seed plays the same faults; SEEDS plays it and those after it.
SEED        ?= 1
SEEDS       ?= 1
DURATION    ?= 30s
# Such as -v, or -only=kill,lose-replies.
CHAOSFLAGS  ?=
# make test: such as -count=1, to repeat what passed.
TESTFLAGS   ?=
# One test binary may take this long; the whole of `make test` takes far less.
TESTTIMEOUT ?= 10m
CLIENTS     = $(patsubst %/README.md,./%,$(wildcard ingest/client/*/README.md))

# The tools run by version, so nobody has to install them and everybody gets the
# same findings.
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSITYGW   = github.com/versity/versitygw/cmd/versitygw@v1.8.0
HELM        = helm.sh/helm/v3/cmd/helm@v3.22.0
KUBECONFORM = github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
# Later ones need a later Go.
GORELEASER  = github.com/goreleaser/goreleaser/v2@v2.14.3
CYCLONEDX   = github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
GOSEC       = $(GO) run github.com/securego/gosec/v2/cmd/gosec@v2.29.0

# Rules that find only what is meant: G103 unsafe views of bytes (fuzzed, and run
# under the race detector), G115 conversions (numbers are bounded where they come
# in, which gosec does not see), G204 and G304 programs and files that the
# operator names, G404 math/rand (jitter and demo data are no secrets).
GOSECFLAGS = -quiet -exclude=G103,G115,G204,G304,G404

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: ## build, then start a demo on 127.0.0.1:8080 that needs nothing else; Ctrl-C ends it. DEMOFLAGS may choose ports
	@[ -e bin/spillway ] || echo 'Building bin/spillway. The first build takes some minutes.'
	@$(MAKE) --no-print-directory build
	bin/spillway demo $(DEMOFLAGS)

# Releases have -trimpath. Here it would compile the standard library again.
.PHONY: build
build: ## build bin/spillway
	$(GO) build -o bin/spillway ./cmd/spillway

# Most tests wait, so more of them run at once than there are cores. What measures and attacks Spillway holds no
# promise of it: test-harness tests that. The test programs are kept (0.9 GB), since to link them anew is a third of the
# work of a run: beside go's cache, since go takes what lies in the module for what a test read. One folder holds one
# program of a name, and lua/job is not partition/job. With GOGC=400 tests collect garbage more rarely: a fifth less CPU,
# for twice the memory, which is at most 120 MB a program.
TEST = GOGC=400 $(GO) test -short -vet=off -p 3 -parallel 8 -timeout $(TESTTIMEOUT) -ldflags='-s -w'

.PHONY: test
test: deps-test ## test every package and promise on a real redis-server (some minutes)
	@kept=$$($(GO) env GOCACHE)-tests$(CURDIR)/; \
		$(TEST) -o "$$kept" $(TESTFLAGS) $$($(GO) list ./... | grep -v -e /bench -e /partition); status=$$?; \
		$(TEST) -o "$${kept}partition/" $(TESTFLAGS) ./partition/... && exit $$status

.PHONY: test-harness
test-harness: deps-test ## test the benchmarks, chaos and hostile input themselves, in short
	$(GO) test -short -vet=off -count=1 -timeout $(TESTTIMEOUT) ./bench/...

.PHONY: test-long
test-long: deps-test ## run those tests at full length: all seeds of the walks, hostile input, chaos, the peers, lmstfy's own client and server
	$(GO) test -vet=off -count=1 -timeout $(TESTTIMEOUT) ./...
	cd bench/peers && $(GO) vet . && $(GO) test -vet=off -count=1 -timeout $(TESTTIMEOUT) .
	cd ingest/lmstfy/clienttest && $(GO) vet . && $(GO) test -vet=off -count=1 -timeout $(TESTTIMEOUT) .

# Longest last, so that what is red shows early. Not here: make test and make conformance, which are parts of these.
ALL = lint test-deploy test-ui test-sinks test-examples test-clients test-php test-long race fuzz hostile \
	chaos chaos-selftest release bench-peers bench

.PHONY: test-all
test-all: ## run everything that a release has to pass, and say what ran and how long it took (hours)
	@.ci/all $(ALL)

.PHONY: race
race: deps-test ## run the tests of every package under the race detector
	$(GO) test -race -count=1 -timeout $(TESTTIMEOUT) ./...

.PHONY: lint
lint: ## check format, vet, staticcheck, gosec and the direction of imports
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'not formatted: run make fmt'; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags seededbugs ./bench/chaos
	GOOS=darwin $(GO) vet ./...
	$(STATICCHECK) ./...
	$(GOSEC) $(GOSECFLAGS) ./...
	$(GO) test -count=1 -run '^TestImports' ./deploy

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (10s) each
	@grep -rl '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$file"); do \
			echo "$$target in $${file%/*}"; \
			out=$$($(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$${file%/*}" </dev/null 2>&1) && \
				{ echo "$$out" | sed -n '/execs/h;$${x;p;}'; continue; }; \
			echo "$$out"; \
			: "go may end a run with its own deadline as the only failure; a find names its input"; \
			case $$out in *"Failing input"*|*panic:*) exit 1;; *"context deadline exceeded"*) ;; *) exit 1;; esac; \
		done; \
	done

.PHONY: hostile
hostile: build deps-test ## send hostile input to a real server and check every answer (some minutes)
	$(GO) run ./bench/hostile

.PHONY: bench
bench: build deps-test deps-bench ## compare its speed with what fasthttp, Redis and lmstfy allow, and check the accounts; one tenant beside hostile ones (20 minutes)
	@cd ingest/lmstfy/clienttest && $(GO) build -o ../../../bin/lmstfy-server github.com/bitleak/lmstfy/server || echo 'No lmstfy: jobs are not held against it.' >&2
	$(GO) run ./bench/run $(BENCHFLAGS)

.PHONY: bench-peers
bench-peers: deps-test ## compare with Redis Streams, asynq, JetStream and a hand-written buffer (3 minutes)
	cd bench/peers && $(GO) run .

.PHONY: chaos
chaos: build deps-test ## kill, freeze and cut off Redis, servers and sink for DURATION, by the plan of SEED; check every promise
	$(GO) run ./bench/chaos -seed $(SEED) -seeds $(SEEDS) -duration $(DURATION) $(CHAOSFLAGS)

.PHONY: chaos-selftest
chaos-selftest: deps-test ## put known bugs into the program, one by one: the checks of make chaos must find each
	$(GO) test -tags seededbugs -count=1 -parallel 4 -timeout $(TESTTIMEOUT) -v -run SeededBug ./bench/chaos

# Most of its cases wait for an outage or a lease: several at once take no longer. make test has run the Go client.
.PHONY: test-clients
test-clients: deps-clients deps-test ## run the clients in other languages (node, Chromium, Mono, Python, Java, PHP), web pages, and SDKs of other vendors
	$(GO) vet -tags clients ./ingest/client/... ./cmd/spillway/e2e ./deploy
	$(GO) test -tags clients -count=1 -parallel 4 -timeout $(TESTTIMEOUT) $(CLIENTS)
	$(GO) test -tags clients -count=1 -parallel 6 -timeout $(TESTTIMEOUT) -run '^Test(Browser|UnmodifiedSDKs|Recipe)' ./cmd/spillway/e2e
	$(GO) test -tags clients -count=1 -run '^TestClientPackages' ./deploy

# The part of test-clients that a change of a client breaks first, without browsers and packages. Its cases
# mostly wait, so all languages run at once.
.PHONY: conformance
conformance: deps-test ## run the conformance suites of the clients in other languages alone (2 minutes)
	@.ci/deps clients languages
	$(GO) test -tags clients -count=1 -p 5 -parallel 4 -timeout $(TESTTIMEOUT) -run '^TestConformance' -skip Chromium $(CLIENTS)

.PHONY: test-ui
test-ui: deps-ui deps-test ## drive the console in a real Chromium, against a real Spillway
	$(GO) vet -tags ui ./cmd/spillway/admin/console/...
	$(GO) test -tags ui -count=1 -timeout $(TESTTIMEOUT) ./cmd/spillway/admin/console/...

.PHONY: test-sinks
test-sinks: deps-sinks ## run the sinks' tests on real servers: PostgreSQL, ClickHouse, NATS, versitygw for S3, kcat for Kafka
	GOBIN=$(CURDIR)/bin $(GO) install $(VERSITYGW)
	$(GO) vet -tags sinks ./drain/sink/...
	PATH="$(CURDIR)/bin:$$PATH" $(GO) test -tags sinks -count=1 -timeout $(TESTTIMEOUT) ./drain/sink/...

.PHONY: test-examples
test-examples: deps-clients deps-sinks ## play the examples whole, with a real ClickHouse and Chromium
	$(GO) vet -tags examples ./deploy/examples/...
	$(GO) test -tags examples -count=1 -timeout $(TESTTIMEOUT) ./deploy/examples/...

.PHONY: test-deploy
test-deploy: deps-deploy deps-test ## check what runs Spillway elsewhere: alerts, dashboard, chart, unit, packages (some minutes)
	GOBIN=$(CURDIR)/bin $(GO) install $(HELM)
	GOBIN=$(CURDIR)/bin $(GO) install $(KUBECONFORM)
	GOBIN=$(CURDIR)/bin $(GO) install $(GORELEASER)
	GOBIN=$(CURDIR)/bin $(GO) install $(CYCLONEDX)
	$(GO) vet -tags deploy ./deploy
	PATH="$(CURDIR)/bin:$$PATH" $(GO) test -tags deploy -count=1 -timeout 30m -run '^Test(Prom|Helm|Unit|Packages)' ./deploy

.PHONY: release
release: deps-release ## build all that a release has, of the last commit, into tmp/release: five platforms, .deb, .rpm, chart, client libraries, SBOMs, checksums (some minutes)
	GOBIN=$(CURDIR)/bin $(GO) install $(GORELEASER)
	GOBIN=$(CURDIR)/bin $(GO) install $(CYCLONEDX)
	PATH="$(CURDIR)/bin:$$PATH" deploy/packages/release.sh tmp/release

.PHONY: test-php
test-php: deps-php deps-test ## try PHP's queues over the libraries themselves, think-queue and Laravel
	$(GO) vet -tags php ./deploy/php
	$(GO) test -tags php -count=1 -timeout $(TESTTIMEOUT) ./deploy/php

.PHONY: check
check: lint race test ## everything a change has to pass

.PHONY: generate
generate: ## rewrite the tables of deploy/CONFIGURATION.md, the golden files of the help, the manual page, the sinks of the example
	$(GO) test -count=1 -run '^Test(HelpIsGolden|ManualPageIsGolden|TheConfigurationTablesAreGenerated|ExampleConfigurationListsEverySink)$$' ./cmd/spillway/app -update

.PHONY: fmt
fmt: ## format the code
	gofmt -w .

.PHONY: deps-test
deps-test: ## install redis-server and a C compiler for the tests, where apt can
	@.ci/deps test

.PHONY: deps-bench
deps-bench: ## install wrk for make bench, where apt can
	@.ci/deps bench

.PHONY: deps-sinks
deps-sinks: ## install the servers of make test-sinks, where apt can
	@.ci/deps sinks

.PHONY: deps-ui
deps-ui: ## install Chromium and npm for make test-ui, where apt can
	@.ci/deps ui

.PHONY: deps-clients
deps-clients: ## install node, npm, Chromium, Mono, Python, a JDK and PHP for make test-clients, where apt can
	@.ci/deps clients

.PHONY: deps-deploy
deps-deploy: ## install promtool, systemd-analyze, dpkg-deb and rpm for make test-deploy, where apt can
	@.ci/deps deploy

.PHONY: deps-release
deps-release: ## install npm, a JDK and Python's setuptools for make release, where apt can
	@.ci/deps release

.PHONY: deps-php
deps-php: ## install PHP and its queue libraries for make test-php, where apt and composer can
	@.ci/deps php
