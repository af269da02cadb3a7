# karpenter-provider-bizflycloud. `make` lists the targets.
#
# A machine needs Go, make, git and a C compiler (for the race detector), nothing else: every tool and every binary of the
# control plane is a pinned Go module, built into .cache/ when first needed and again only when its module changes.

SHELL := bash
# The toolchain of go.mod comes through the module proxy, even if the machine sets GOTOOLCHAIN=local.
export GOTOOLCHAIN := auto
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BINARY  := karpenter-provider-bizflycloud
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git describe --always --dirty --exclude='*' --abbrev=7 2>/dev/null)
MODULE  := github.com/bizflycloud/karpenter-provider-bizflycloud
# The kubectl plugin is a module of its own; Ginkgo runs its suites with all others, since it compiles each in its folder.
PLUGIN  := cmd/kubectl-bizfly
CACHE   := $(CURDIR)/.cache
TOOLS   := $(CACHE)/tools
STAMPS  := $(CACHE)/stamps
REPORTS := $(CACHE)/reports

# The Kubernetes versions of the tests are those in the modules of the two control planes: the one that the controller is compiled
# against, and the oldest one that the chart admits.
kubernetes-version = $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2; exit }' $(1)/go.mod)
KUBERNETES_VERSION := $(call kubernetes-version,test/support/controlplane)
OLDEST_VERSION     := $(call kubernetes-version,test/support/controlplane/oldest)
CONTROLPLANE_BIN   := $(CACHE)/controlplane/bin
OLDEST_BIN         := $(CACHE)/controlplane-$(basename $(OLDEST_VERSION:v%=%))/bin
# Your own binaries win: KUBEBUILDER_ASSETS=/usr/local/kubebuilder/bin make test
KUBEBUILDER_ASSETS ?= $(CONTROLPLANE_BIN)
# make test KUBERNETES=oldest PKG=./pkg/apis; so do e2e, demo and sandbox. It wins over a variable that this make has exported to another.
ifdef KUBERNETES
ifneq ($(KUBERNETES),oldest)
$(error KUBERNETES=$(KUBERNETES): only "oldest" is possible, which is $(OLDEST_VERSION); without it, $(KUBERNETES_VERSION) is used)
endif
override KUBEBUILDER_ASSETS := $(OLDEST_BIN)
endif
export KUBEBUILDER_ASSETS

CORES     := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# Exported variables do not reach $(shell) before make 4.4.
GOVERSION := $(shell GOTOOLCHAIN=auto go env GOVERSION)
KUBERNETES_MAJOR   := $(patsubst v%,%,$(word 1,$(subst ., ,$(KUBERNETES_VERSION))))
KUBERNETES_MINOR   := $(word 2,$(subst ., ,$(KUBERNETES_VERSION)))
CONTAINERD_VERSION := $(shell awk '$$1 == "github.com/containerd/containerd/v2" { print $$2; exit }' test/support/realnode/containerd/go.mod)
RUNC_VERSION       := $(shell awk '$$1 == "github.com/opencontainers/runc" { print $$2; exit }' test/support/realnode/runc/go.mod)
KWOK_VERSION       := $(shell awk '$$1 == "sigs.k8s.io/kwok" { print $$2; exit }' test/support/controlplane/kwok/go.mod)

# Everything but the tests with the race detector, which needs C, is compiled with the same flags, so that the controller and
# its image, the control plane, the linter, the chaos and the demo share one build cache.
TRIMPATH := CGO_ENABLED=0 GOFLAGS="$(GOFLAGS) -trimpath"
GO_BUILD := CGO_ENABLED=0 go build -trimpath

# Where suites live; make test PKG=./internal/x runs that one. Long runs with processes of their own (demo, e2e, bench) are not among them; a few simulations are.
TEST_DIRS ?= $(or $(PKG),$(addprefix ./,$(wildcard cmd hack internal pkg test/measure/bill test/simulation test/realcloud/answers test/e2e/core test/measure/demo test/e2e/docs test/support/environment test/support/invariants test/component/chart test/component/properties test/sandbox test/component/scheduling test/support/suite)))
# The longest of them begin first.
ifeq ($(origin TEST_DIRS)$(PKG),file)
TEST_FIRST := ./test/simulation ./test/component/edits ./internal/cloudprovider ./test/component/scheduling ./internal/operator ./cmd/kubectl-bizfly/internal/cli
endif
# More flags for the test runner: make test GINKGO_FLAGS='--focus="should adopt"'
GINKGO_FLAGS ?=

# $(call stamp,name,files): a file that is newer than its target only if the contents of these files (or the version of Go) have
# changed. Times do not matter, so that a fresh checkout of the same sources builds nothing.
stamp = $(STAMPS)/$(1)@$(GOVERSION)-$(shell cat $(2) | git hash-object --stdin)

.PHONY: help
help: ## List the targets
	@awk 'match($$0, /name: [a-z0-9-]+, seconds: [0-9]+/) { split(substr($$0, RSTART + 6, RLENGTH - 6), row, ", seconds: "); took[row[1]] = row[2]; next } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { split($$0, part, ":.*## "); name = part[1]; seconds = took[name]; \
			printf "  %-17s %7s  %s\n", name, seconds == "" ? "" : seconds < 90 ? seconds " s" : int((seconds + 30) / 60) " min", part[2] }' hack/everything/checks.yaml $(firstword $(MAKEFILE_LIST))
	@printf '\nThe times are those of 2 cores once everything above is built (hack/everything/checks.yaml).\n'

##@ Build and run

.PHONY: build
build: ## Build the controller: bin/karpenter-provider-bizflycloud
	$(GO_BUILD) -ldflags "-X sigs.k8s.io/karpenter/pkg/operator.Version=$(VERSION) \
		-X $(MODULE)/internal/operator.commit=$(COMMIT)" -o bin/$(BINARY) ./cmd/controller

.PHONY: demo
demo: build controlplane ## Show it: pods are created, servers are launched, pods and servers are deleted
	@$(run-demo) --scrapes $(SCRAPES)
	@cksum bin/$(BINARY) > $(SCRAPES)/controller

.PHONY: sandbox
sandbox: build controlplane ## Start the same and leave it running for kubectl: .sandbox/kubeconfig, .sandbox/env
	@$(run-demo) --keep

.PHONY: sandbox-image
sandbox-image: ## Build the image of the cloud's sandbox for other clients (docs/contribute/sandbox.md); the variables are those of docker-build (not in CI: it pulls the images that it is built from)
	@DOCKERFILE=test/sandbox/Dockerfile $(MAKE) --no-print-directory docker-build IMG="$(IMG)-sandbox"

# Where your own KUBEBUILDER_ASSETS lacks a binary (controller-manager, scheduler, KWOK), ours is used. The demo is built and then
# replaces the shell, unlike with `go run`, so that it gets Ctrl-C and its exit status is its own.
SCRAPES := $(CACHE)/scrapes
define run-demo
$(GO_BUILD) -o $(CACHE)/bin/demo ./test/measure/demo && $(GO_BUILD) -o $(CACHE)/bin/sandbox ./test/sandbox && \
	CONTROLLER="$(CURDIR)/bin/$(BINARY)" SANDBOX="$(CACHE)/bin/sandbox" exec $(CACHE)/bin/demo
endef

##@ Test

OUR_CONTROLPLANE := $(addsuffix /controlplane,$(filter $(CONTROLPLANE_BIN) $(OLDEST_BIN),$(KUBEBUILDER_ASSETS)))

# CI retries a failed spec once and lists it as RETRIED in the summary; elsewhere the first failure counts. In the nightly run a
# retried spec counts as failed, so that no flaky spec stays unnoticed.
FAIL_RETRIED ?= $(filter schedule,$(GITHUB_EVENT_NAME))

# envtest needs etcd and kube-apiserver: ours, unless you brought your own. The suite of the pages parses their commands with Helm and the plugin.
TEST_NEEDS := $(OUR_CONTROLPLANE) $(TOOLS)/helm $(if $(filter . ./test ./test/ ./test/e2e/docs%,$(TEST_DIRS)),plugin)

.PHONY: test
test: $(TEST_NEEDS) ## Run every suite, with the race detector and in random order; PKG=./internal/x runs one
	@mkdir -p $(REPORTS) $(CACHE)/bin $(CACHE)/suites && rm -f $(REPORTS)/specs*.json
	@echo "testing $(TEST_DIRS) (the first run compiles Kubernetes' libraries with the race detector, which takes minutes)"
	@$(GO_BUILD) -o $(CACHE)/bin/ ./hack/testsummary
	@status=0; \
	REPORTS=$(REPORTS) BINARIES=$(CACHE)/suites hack/suites.sh $(TEST_FIRST) $(TEST_DIRS) -- $(if $(CI),--no-color --flake-attempts=2) $(GINKGO_FLAGS) || status=$$?; \
	$(CACHE)/bin/testsummary --status $$status $(if $(FAIL_RETRIED),--fail-retried) $(REPORTS)/specs*.json

# make test-order TEST_DIRS=./internal/providers ORDERS=3 SEED=100
.PHONY: test-order
test-order: $(TEST_NEEDS) ## Run suites in 10 random orders, and each top-level container alone (hours for all: name yours in TEST_DIRS; make test takes another order each time)
	@$(TRIMPATH) ORDERS="$(ORDERS)" SEED="$(SEED)" hack/order.sh $(TEST_DIRS:%=%/...)

# The suites run side by side, and so do the specs of each: every process starts a control plane of its own, and mostly waits.
# make e2e E2E_DIRS=./test/e2e/install E2E_PROCS=1 GINKGO_FLAGS='--focus="A release"'
E2E_DIRS  ?= ./test/e2e/lifecycle ./test/e2e/install ./test/e2e/docs
E2E_PROCS ?= 3
E2E_ENV = E2E=true CONTROLLER="$(CURDIR)/bin/$(BINARY)" SANDBOX="$(CACHE)/bin/sandbox" HELM="$(TOOLS)/helm" $(TRIMPATH)
E2E = $(E2E_ENV) $(CACHE)/bin/ginkgo run --procs=$(E2E_PROCS) --randomize-all --poll-progress-after=2m --timeout=60m $(if $(CI),--no-color)

# The rehearsals of the migrations are pages of docs/ that test/e2e/docs runs: its other specs have no label e2e.
.PHONY: e2e
e2e: build plugin controlplane $(TOOLS)/helm ## Run the end-to-end suites: real processes, killed and misconfigured; the charts, installed by Helm; the migrations
	@mkdir -p $(REPORTS) && rm -f $(REPORTS)/e2e-*
	@$(GO_BUILD) -o $(CACHE)/bin/ ./test/sandbox ./hack/testsummary github.com/onsi/ginkgo/v2/ginkgo
	@echo "running $(E2E_DIRS) side by side on $$($(KUBEBUILDER_ASSETS)/kube-apiserver --version 2>/dev/null), logging to $(REPORTS)/e2e-*.log"
	@status=0; suites=; for dir in $(E2E_DIRS); do \
		$(E2E) --label-filter=e2e $(if $(GINKGO_FLAGS),,--fail-on-empty) --output-dir=$(REPORTS) --json-report=e2e-$${dir##*/}.json $(GINKGO_FLAGS) $$dir >$(REPORTS)/e2e-$${dir##*/}.log 2>&1 & \
		suites="$$suites $$!"; \
	done; \
	for suite in $$suites; do wait $$suite || status=$$?; done; \
	cat $(REPORTS)/e2e-*.log; \
	$(CACHE)/bin/testsummary --status $$status $(REPORTS)/e2e-*.json

# What depends on the API server and on kube-controller-manager. The migrations are pages, whose output is that of the present kubectl.
.PHONY: e2e-oldest
e2e-oldest: ## Run the end-to-end suites, those of the charts and those of the custom resources on the oldest Kubernetes that the chart admits
	@$(MAKE) --no-print-directory e2e KUBERNETES=oldest E2E_DIRS="./test/e2e/lifecycle ./test/e2e/install"
	@$(MAKE) --no-print-directory test KUBERNETES=oldest TEST_DIRS="./pkg/apis ./test/component/chart"

# Root on Linux only; elsewhere it says why it is skipped. test/e2e/nodes/nodes.sh keeps it away from the machine's network and kernel settings.
# make e2e-order E2E_DIRS=./test/e2e/install ORDERS=3 SEED=100
.PHONY: e2e-order
e2e-order: build plugin controlplane $(TOOLS)/helm ## Run the end-to-end suites in 10 random orders, and each top-level container alone (hours for all; make e2e takes another order each time)
	@$(GO_BUILD) -o $(CACHE)/bin/ ./test/sandbox github.com/onsi/ginkgo/v2/ginkgo
	@ORDERS="$(ORDERS)" SEED="$(SEED)" PROCS="$(E2E_PROCS)" LABEL=e2e $(E2E_ENV) hack/order.sh $(E2E_DIRS)

# make e2e-nodes NODES_FLAGS='-ginkgo.focus=PodDisruptionBudget'
.PHONY: e2e-nodes
e2e-nodes: ## Run the controller from its image on real nodes: servers are machines that boot, run our user data and join with a real kubelet (root on Linux; building takes 5 minutes once)
	@MAKE="$(MAKE)" NODES_FLAGS="$(NODES_FLAGS)" test/e2e/nodes/nodes.sh
	@$(if $(NODES_FLAGS),,MAKE="$(MAKE)" test/e2e/nodes/interrupted.sh)

# What test/e2e/nodes/nodes.sh needs, once it knows that it can run.
.PHONY: nodes-built
nodes-built: build controlplane node-image $(TOOLS)/helm $(TOOLS)/crane $(if $(filter test/e2e/docs,$(NODES_SUITE)),plugin)
	@$(GO_BUILD) -o $(CACHE)/bin/sandbox ./test/sandbox && $(TRIMPATH) go test -c -o $(CACHE)/bin/nodes.test ./$(or $(NODES_SUITE),test/e2e/nodes)

MONITORING = (cd test/e2e/monitoring && $(TRIMPATH) SCRAPES=$(SCRAPES) go test -count=1 -v . $(if $(CI),-ginkgo.no-color))

# The metrics of the last demo are used if this controller was in it; otherwise a demo runs first.
.PHONY: monitoring
monitoring: build ## Evaluate dashboards and alerts on the metrics of a demo with Prometheus's own engine, and test the alerts (docs/operate/monitoring.md)
	@[ "$$(cat $(SCRAPES)/controller 2>/dev/null)" = "$$(cksum bin/$(BINARY))" ] || $(MAKE) --no-print-directory demo
	@$(MONITORING)

# Results merge into test/measure/scale/results.json, so that a part can be measured again: make bench-scale BENCH_SCALE_FLAGS='--nodes 100 --scenarios up'
# Only the page and the plots from what is there: BENCH_SCALE_FLAGS=--report
.PHONY: bench-scale
bench-scale: build controlplane ## Measure against core's kwok provider, up to 500 nodes, for docs/contribute/benchmarks.md (many hours on a quiet machine; BENCH_SCALE_FLAGS='--nodes 10 --rounds 1')
	@$(GO_BUILD) -o $(CACHE)/bin/ ./test/measure/scale ./test/sandbox && $(GO_BUILD) -o $(CACHE)/bin/karpenter-kwok sigs.k8s.io/karpenter/kwok
	@cd test/measure/scale/plot && $(GO_BUILD) -o $(CACHE)/bin/plot .
	@CONTROLLER="$(CURDIR)/bin/$(BINARY)" KWOK_CONTROLLER="$(CACHE)/bin/karpenter-kwok" SANDBOX="$(CACHE)/bin/sandbox" $(CACHE)/bin/scale $(BENCH_SCALE_FLAGS)
	@$(CACHE)/bin/plot scale test/measure/scale/results.json docs/images

# What workloads cost in several ways to run them, in simulated time: test/measure/bill, with core's own scheduler and consolidation.
# Only the page and the plots from what is there: make bench-bill BENCH_BILL=report. Only some columns: BENCH_BILL=suggested,reference
.PHONY: bench-bill
bench-bill: ## Measure what workloads cost with each consolidationPolicy, with fixed pools and at best, for docs/concepts/cost.md (not in CI: it writes what make test compares)
	@mkdir -p $(CACHE)/bin
	@cd test/measure/scale/plot && $(GO_BUILD) -o $(CACHE)/bin/plot .
	@cd $(PLUGIN) && BENCH_BILL=$(or $(BENCH_BILL),measure) $(TRIMPATH) go test -count=1 -v -timeout=1h -run=TestMeasure ./internal/bill
	@$(CACHE)/bin/plot bill test/measure/bill/results.json docs/images

# Processor time and allocations, as ratios of two measurements side by side: no absolute time is guaranteed or tested.
# make bench BENCH_ROUNDS=9 BENCH=InstanceTypes
.PHONY: bench
bench: ## Run the benchmarks in rounds and compare their ratios with the bounds of test/measure/bench/bounds_test.go
	@$(TRIMPATH) BENCH_ROUNDS=$(or $(BENCH_ROUNDS),5) BENCH="$(BENCH)" go test -count=1 -v -timeout=30m -run='^Test(Bounds|Value)$$' ./test/measure/bench

# Core's suites are test packages of its module, which test/e2e/core/suites pins with what they need.
# make conformance CONFORMANCE_FLAGS='--only regression --parallel 2 --focus CapacityBuffer'; CONFORMANCE_DOC=true rewrites the table of docs/contribute/conformance.md.
CORE_SUITES := sigs.k8s.io/karpenter/test/suites

.PHONY: conformance
conformance: build controlplane ## Run Karpenter core's own end-to-end suites against this provider, on several control planes side by side (docs/contribute/conformance.md)
	@mkdir -p $(CACHE)/conformance
	@$(GO_BUILD) -o $(CACHE)/bin/ ./test/e2e/core ./test/sandbox
	@echo "compiling Karpenter's suites (a minute the first time)"
	@cd test/e2e/core/suites && for suite in regression disruption dra performance; do \
		$(TRIMPATH) go test -c -o $(CACHE)/conformance/$$suite.test $(CORE_SUITES)/$$suite || exit 1; done
	@CONTROLLER="$(CURDIR)/bin/$(BINARY)" SANDBOX="$(CACHE)/bin/sandbox" exec $(CACHE)/bin/core --suites $(CACHE)/conformance \
		--reports $(REPORTS)/conformance $(if $(CONFORMANCE_DOC),--doc docs/contribute/conformance.md) \
		--scheduler-config "$$(cd test/e2e/core/suites && go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)/test/suites/regression/testdata/kube-scheduler-config.yaml" \
		$(CONFORMANCE_FLAGS)

# It records the responses of the cloud in .cache/reports/answers-<region>-<run>.json. Copy them to test/realcloud/recorded.json to compare
# with them. A server lives for less than the two hours that the budget counts: the specs end after 75 minutes, and each of the two removals
# at the end after 20. While .cache/reports/e2e-cloud-run-<run> exists, something may be left of that run. Ctrl-C must not end
# what writes the log (tee -i): the removal would end with it.
.PHONY: e2e-cloud
e2e-cloud: ## Launch, join and delete ONE server in a real project, within E2E_CLOUD_BUDGET_VND (docs/contribute/first-contact.md; skipped without credentials)
	@mkdir -p $(REPORTS)
	@set -o pipefail; E2E_CLOUD_ANSWERS="$(or $(E2E_CLOUD_ANSWERS),$(REPORTS)/)" E2E_CLOUD_SANDBOX= \
		$(TRIMPATH) go test -v -count=1 -timeout=3h ./test/realcloud -ginkgo.v -ginkgo.timeout=75m -ginkgo.grace-period=25m $(if $(CI),-ginkgo.no-color) 2>&1 | \
		tee -i -a $(REPORTS)/e2e-cloud.log

# make e2e-cloud-sandbox MODES=all MODE_RUNS=50 MODE_SEED=1, or MODES=nvme,regions-down for one combination. Without MODES, the sandbox
# gets the flags in SANDBOX_ARGS: make e2e-cloud-sandbox SANDBOX_ARGS="--hide-building --mode silent-flavors"
.PHONY: e2e-cloud-sandbox
ifdef MODES
e2e-cloud-sandbox:
	@E2E_CLOUD_MODES="$(MODES)" MODE_RUNS="$(or $(MODE_RUNS),50)" MODE_SEED="$(or $(MODE_SEED),1)" E2E_CLOUD_SANDBOX=true \
		$(TRIMPATH) go test -v -count=1 -timeout=20m ./test/realcloud -ginkgo.fail-on-empty -ginkgo.label-filter=modes $(if $(CI),-ginkgo.no-color)
else
e2e-cloud-sandbox: controlplane ## The same with the sandbox, and how its responses differ from those recorded of the real cloud. MODES=all: in each mode of the sandbox
	@mkdir -p $(REPORTS) && $(GO_BUILD) -o $(CACHE)/bin/sandbox ./test/sandbox && $(GO_BUILD) -o $(CACHE)/bin/compare ./test/realcloud/compare
	@E2E_CLOUD_ANSWERS="$(REPORTS)/answers-sandbox.json" E2E_CLOUD_SANDBOX=true SANDBOX="$(CACHE)/bin/sandbox" SANDBOX_ARGS="$(SANDBOX_ARGS)" E2E_CLOUD_MODES= \
		$(TRIMPATH) go test -v -count=1 -timeout=20m ./test/realcloud -ginkgo.v $(if $(CI),-ginkgo.no-color)
	@if [ -f test/realcloud/recorded.json ]; then $(CACHE)/bin/compare test/realcloud/recorded.json $(REPORTS)/answers-sandbox.json; \
		else echo "no responses of the real cloud are recorded yet (test/realcloud/recorded.json): nothing to compare with"; fi
endif

# make test runs a few simulations, this one many: make chaos SEED=1000 RUNS=5000. It prints how to replay one that fails.
# With RUNS there are no runs with processes, unless PROCESS_RUNS sets their number. Without, each call of each life is struck alone, and
# 200 pairs of calls in each life. make chaos POINTS=0 PAIRS=10000 PAIRS_FROM=0 GINKGO_FLAGS=--focus=life tries the first 10,000 of all pairs.
PROCESS_RUNS ?= $(if $(RUNS),0,2)

.PHONY: chaos
chaos: ## Run 500 seeded fault-injection simulations, then 2 runs with real processes (docs/contribute/testing.md)
	@mkdir -p $(REPORTS)/chaos
	@$(TRIMPATH) SEED="$(or $(SEED),1)" RUNS="$(or $(RUNS),500)" CHAOS_LOGS="$(REPORTS)/chaos" \
		MONTH_DAYS="$(or $(MONTH_DAYS),$(if $(RUNS),7,30))" POINTS="$(or $(POINTS),$(if $(RUNS),50,100000))" PAIRS="$(or $(PAIRS),$(if $(RUNS),20,200))" go tool ginkgo run --procs=$(CORES) \
		--timeout=2h --poll-progress-after=2m --fail-on-empty $(if $(CI),--no-color) $(GINKGO_FLAGS) ./test/simulation
	@if [ "$(PROCESS_RUNS)" != 0 ]; then $(MAKE) --no-print-directory chaos-processes RUNS="$(PROCESS_RUNS)"; fi

# make chaos-processes SEED=7 RUNS=10
.PHONY: chaos-processes
chaos-processes: build controlplane ## Run only those with real processes: kill and freeze replicas, stop the API server, inject faults (3 minutes per run)
	@mkdir -p $(REPORTS)/chaos && $(GO_BUILD) -o $(CACHE)/bin/sandbox ./test/sandbox
	@E2E=true SEED="$(or $(SEED),1)" RUNS="$(or $(RUNS),2)" CHAOS_LOGS="$(REPORTS)/chaos" CONTROLLER="$(CURDIR)/bin/$(BINARY)" \
		SANDBOX="$(CACHE)/bin/sandbox" $(TRIMPATH) go tool ginkgo run --poll-progress-after=15m --timeout=6h --fail-on-empty $(if $(CI),--no-color) \
		$(GINKGO_FLAGS) ./test/e2e/faults

# make chaos-nodes SEED=7 RUNS=3
.PHONY: chaos-nodes
chaos-nodes: ## Run only those with real processes, on real nodes: servers are machines that boot and join with a real kubelet (root on Linux; 6 minutes per run)
	@mkdir -p $(REPORTS)/chaos
	@MAKE="$(MAKE)" NODES_SUITE=test/e2e/faults NODES_FLAGS="$(NODES_FLAGS)" SEED="$(or $(SEED),1)" RUNS="$(or $(RUNS),1)" \
		CHAOS_LOGS="$(REPORTS)/chaos" test/e2e/nodes/nodes.sh

# make test runs the seeds of each target and what it has found once, this one searches: make fuzz FUZZTIME=10m
.PHONY: fuzz
fuzz: ## Fuzz every target for 30 s: answers, classes of errors, user data, prices, settings, names, manifests of the plugin
	@mkdir -p $(CACHE)
	@grep -rnoE '^func Fuzz[A-Za-z]+' --include='*_test.go' internal cmd | sed -E 's#^([^:]*)/[^/:]*:[0-9]+:func (.*)#\1 \2#' >$(CACHE)/fuzz.txt
	@[ -s $(CACHE)/fuzz.txt ] || { echo "there is no target to fuzz"; exit 1; }
	@# Before 1.27, Go may take the end of the time for a failure (golang/go#75804). A failure that it finds names an input.
	@set -o pipefail; while read -r dir name; do \
		echo "--- $$name of $$dir"; \
		(cd $$dir && $(TRIMPATH) go test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(or $(FUZZTIME),30s) .) 2>&1 | tee $(CACHE)/fuzz.log || \
			{ grep -qx ' *context deadline exceeded' $(CACHE)/fuzz.log && ! grep -q 'Failing input' $(CACHE)/fuzz.log; } || exit 1; \
	done <$(CACHE)/fuzz.txt

# make test tries a few clusters and edits, this one many: make properties PROPERTY_SEEDS=1000 EDIT_PAIRS=10000, PROPERTIES=edits for one of them.
PROPERTIES ?= consolidation plan edits
run-property = $(if $(filter $(1),$(PROPERTIES)),@cd $(2) && $(TRIMPATH) PROPERTY_SEEDS="$(or $(PROPERTY_SEEDS),200)" EDIT_PAIRS="$(or $(EDIT_PAIRS),2000)" \
	go test -v -count=1 -timeout=2h $(3) -ginkgo.v $(if $(CI),-ginkgo.no-color))

.PHONY: properties
properties: $(OUR_CONTROLPLANE) ## Let core consolidate 200 random clusters; plan 200, and launch what was planned; repack some, and interrupt 200; edit each field of a NodeClass and a ProviderConfig, and 2000 pairs
	$(call run-property,consolidation,.,./test/component/properties)
	$(call run-property,plan,$(PLUGIN),./internal/plan ./internal/repack)
	$(call run-property,edits,.,./test/component/edits)

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## Run golangci-lint
	$(TRIMPATH) GOLANGCI_LINT_CACHE=$(CACHE)/golangci-lint $(TOOLS)/golangci-lint run
	cd $(PLUGIN) && $(TRIMPATH) GOLANGCI_LINT_CACHE=$(CACHE)/golangci-lint $(TOOLS)/golangci-lint run

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## Format the Go code and its imports
	$(TOOLS)/golangci-lint fmt

.PHONY: prose
prose: $(TOOLS)/vale ## Check the words and sentences of documentation, chart comments and API descriptions (.vale.ini)
	@VALE=$(TOOLS)/vale hack/prose.sh $(PROSE)

.PHONY: verify
verify: $(TOOLS)/golangci-lint $(TOOLS)/controller-gen $(TOOLS)/helm $(TOOLS)/helm-docs $(TOOLS)/actionlint $(TOOLS)/vale $(OUR_CONTROLPLANE) ## Check everything that needs no cluster: generated files, charts, workflows, format, vet, modules, lint, prose, headers
	@HELM=$(TOOLS)/helm ACTIONLINT=$(TOOLS)/actionlint VALE=$(TOOLS)/vale $(TRIMPATH) GOLANGCI_LINT_CACHE=$(CACHE)/golangci-lint GOLANGCI_LINT=$(TOOLS)/golangci-lint MAKE="$(MAKE)" hack/verify.sh

# It goes on where an interrupted run of the same sources stopped. CONTINUE=true runs again what failed, RECORD=true notes the times.
.PHONY: everything
everything: ## Run every check that a workflow or .ci/run runs, and those of no other time, with a table at the end; ONLY="lint docs", FROM=e2e, CONTINUE=true
	@$(run-everything) run --only "$(ONLY)" --from "$(FROM)" --continue=$(or $(CONTINUE),false) --record=$(or $(RECORD),false)

.PHONY: everything-list
everything-list: ## List these checks, how long they take and when they run
	@$(run-everything) list

# The checks are calls of make of their own: they get neither the flags nor the job server of this one.
run-everything = $(GO_BUILD) -o $(CACHE)/bin/everything ./hack/everything && env -u MAKEFLAGS -u MAKEOVERRIDES -u MFLAGS -u MAKELEVEL $(CACHE)/bin/everything

##@ kubectl plugin

.PHONY: plugin
plugin: ## Build the kubectl plugin: bin/kubectl-bizfly (docs/reference/kubectl-bizfly.md)
	cd $(PLUGIN) && $(GO_BUILD) -ldflags "-X sigs.k8s.io/karpenter/pkg/operator.Version=$(VERSION) -X $(MODULE)/internal/operator.commit=$(COMMIT)" -o $(CURDIR)/bin/kubectl-bizfly .

.PHONY: plugin-docs
plugin-docs: ## Write what the plugin prints into its page, and the picture of top: docs/reference/kubectl-bizfly.md, docs/images/top.svg (not in CI: it writes what make test compares)
	cd $(PLUGIN) && UPDATE_DOCS=true $(TRIMPATH) go test -count=1 ./internal/cli -ginkgo.fail-on-empty -ginkgo.focus='docs/'

# make plugin-release TAG=v1.2.3 PLUGIN_PLATFORMS=linux/amd64
.PHONY: plugin-release
plugin-release: ## Build the plugin's archives for Linux, macOS and Windows and its Krew manifest: dist/plugin
	hack/release/plugin.sh "$(TAG)" $(PLUGIN_PLATFORMS)

##@ Image and release

# The registry of the project that the image is published from; yours: make docker-build docker-push IMG=registry.example/karpenter TAG=v1
IMG            ?= cr-hn-1.bizflycloud.vn/31ff9581861a4d0ea4df5e7dda0f665d/karpenter-provider-bizflycloud
TAG            ?= $(VERSION)
PLATFORMS      ?= linux/amd64,linux/arm64
CONTAINER_TOOL ?= docker
# Empty means what hack/release/Dockerfile says. Both are build arguments.
BUILDER_IMAGE ?=
BASE_IMAGE    ?=
IMAGE = IMG="$(IMG)" TAG="$(TAG)" VERSION="$(VERSION)" COMMIT="$(COMMIT)" PLATFORMS="$(PLATFORMS)" CONTAINER_TOOL="$(CONTAINER_TOOL)" \
	BUILDER_IMAGE="$(BUILDER_IMAGE)" BASE_IMAGE="$(BASE_IMAGE)" BUILD_ARGS="$(BUILD_ARGS)" PUSH_ARGS="$(PUSH_ARGS)" hack/release/image.sh

.PHONY: docker-build
docker-build: ## Build the image for amd64 and arm64: IMG, TAG, PLATFORMS, BUILDER_IMAGE, BASE_IMAGE, CONTAINER_TOOL=docker|buildah
	@$(IMAGE) build

.PHONY: docker-push
docker-push: ## Push the image that docker-build has built
	@$(IMAGE) push

.PHONY: image-check
image-check: build controlplane $(TOOLS)/registry ## Build the image twice with buildah, compare, push it to a local registry, start it without privileges (root on Linux)
	@$(GO_BUILD) -o $(CACHE)/bin/sandbox ./test/sandbox
	@SANDBOX="$(CACHE)/bin/sandbox" REGISTRY_BIN="$(TOOLS)/registry" $(IMAGE) check

.PHONY: release-rehearsal
release-rehearsal: build controlplane $(TOOLS)/helm $(TOOLS)/registry $(TOOLS)/cosign ## Build, push to a registry on this machine, sign, verify as users do and install from there what a release would (needs what image-check needs)
	@HELM=.cache/tools/helm REGISTRY_BIN="$(TOOLS)/registry" COSIGN_BIN="$(TOOLS)/cosign" SIGSTORE_BIN="$(TOOLS)/sigstore" hack/release/release.sh rehearse

.PHONY: govulncheck
govulncheck: $(TOOLS)/govulncheck ## Search controller and plugin with their dependencies for known vulnerabilities (asks the Go vulnerability database)
	$(TOOLS)/govulncheck ./cmd/... ./internal/... ./pkg/...
	cd $(PLUGIN) && $(TOOLS)/govulncheck ./...

.PHONY: actionlint
actionlint: $(TOOLS)/actionlint ## Check the GitHub workflows
	$(TOOLS)/actionlint -shellcheck= -pyflakes=

##@ Generate

CORE_CRDS = $(shell GOTOOLCHAIN=auto go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)/pkg/apis/crds
# The pages of docs/ with tables that hack/docs writes from the code.
DOC_PAGES := $(addprefix reference/,compatibility fields flavors metrics options) contribute/sandbox
# The folders that carry a copy of every custom resource definition: ours and Karpenter core's.
CRD_CHART  := charts/$(BINARY)-crd
CRD_COPIES := config/crd $(CRD_CHART)/templates

.PHONY: generate
generate: $(TOOLS)/controller-gen $(TOOLS)/helm $(TOOLS)/helm-docs ## Generate deep copies, custom resource definitions, config/ from the chart, and reference pages
	$(TOOLS)/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./pkg/apis/...
	@# In another folder first, since the package that embeds them must compile meanwhile.
	@rm -rf $(CACHE)/crds
	$(TOOLS)/controller-gen crd paths=./pkg/apis/... output:crd:dir=$(CACHE)/crds
	@rm -f pkg/apis/crds/*.yaml && mkdir -p pkg/apis/crds && cp $(CACHE)/crds/*.yaml pkg/apis/crds/
	@for dir in $(CRD_COPIES); do \
		rm -f $$dir/*_*.yaml && cp $(CACHE)/crds/*.yaml $(CORE_CRDS)/*.yaml $$dir/ && chmod 644 $$dir/*_*.yaml || exit 1; \
	done
	@# Uninstalling the chart keeps the definitions, and so NodePools, NodeClaims and servers. Helm would evaluate a description in
	@# braces as a template.
	@# Cluster-autoscaler ships CapacityBuffer, too.
	@for crd in $(CRD_CHART)/templates/*_*.yaml; do \
		! grep -n '{{' $$crd || { echo "$$crd: braces are a template to Helm: word that description differently"; exit 1; }; \
		awk '{ print } !done && /^  annotations:$$/ { print "    helm.sh/resource-policy: keep"; done = 1 } END { exit !done }' \
			$$crd > $(CACHE)/crds/kept && cp $(CACHE)/crds/kept $$crd && rm $(CACHE)/crds/kept || exit 1; \
	done
	@for crd in $(CRD_CHART)/templates/*_capacitybuffers.yaml; do \
		{ echo '{{- if .Values.capacityBuffers.enabled }}'; cat $$crd; echo '{{- end }}'; } > $(CACHE)/crds/kept && mv $(CACHE)/crds/kept $$crd || exit 1; \
	done
	@{ echo "# Written by make generate."; echo "apiVersion: kustomize.config.k8s.io/v1beta1"; echo "kind: Kustomization"; \
		echo "resources:"; (cd config/crd && printf "  - %s\n" *_*.yaml); } > $(CACHE)/crds/kustomization \
		&& mv $(CACHE)/crds/kustomization config/crd/kustomization.yaml
	@for page in $(DOC_PAGES); do \
		go run ./hack/docs $$page > $(CACHE)/crds/page.md && mv $(CACHE)/crds/page.md docs/$$page.md || exit 1; \
	done
	@go run ./hack/docs catalog > $(CACHE)/crds/catalog.json && mv $(CACHE)/crds/catalog.json $(PLUGIN)/internal/offline/catalog.json
	@$(run-everything) page docs/contribute/testing.md
	@HELM=$(TOOLS)/helm go run ./hack/chart
	@$(HELM_DOCS)

HELM_DOCS = $(TOOLS)/helm-docs --chart-search-root charts --sort-values-order file --log-level warning

.PHONY: chart-golden
chart-golden: $(TOOLS)/helm $(OUR_CONTROLPLANE) ## Record what the chart generates: test/component/chart/testdata. Review the difference
	UPDATE_GOLDEN=true go test ./test/component/chart -ginkgo.fail-on-empty -ginkgo.focus='golden files'

.PHONY: chart-package
chart-package: $(TOOLS)/helm ## Package both charts: .cache/charts. A release pins its image in them: DIGEST=sha256:...
	@rm -rf $(CACHE)/charts && mkdir -p $(CACHE)/charts && cp -r charts $(CACHE)/charts/sources
	@$(if $(DIGEST),printf '  karpenter.bizflycloud.vn/image-digest: %s\n  artifacthub.io/images: |\n    - name: controller\n      image: %s\n' \
		"$(DIGEST)" "$(IMG):$(TAG)@$(DIGEST)" >>$(CACHE)/charts/sources/$(BINARY)/Chart.yaml)
	$(TOOLS)/helm package --destination $(CACHE)/charts $(CACHE)/charts/sources/$(BINARY)-crd $(CACHE)/charts/sources/$(BINARY)

##@ Documentation

SITE := docs/.vitepress

.PHONY: docs
docs: $(SITE)/node_modules/.package-lock.json ## Check the pages and build the site: .cache/site (needs Node.js 20)
	@cd $(SITE) && npm run --silent check && npm run --silent build

.PHONY: docs-dev
docs-dev: $(SITE)/node_modules/.package-lock.json ## Serve the site while you write: http://localhost:5173
	@cd $(SITE) && npm run dev

.PHONY: docs-browse
docs-browse: docs ## Open the built site in headless Chromium: search, navigation, code, diagram, narrow screen (CHROMIUM names the browser)
	@cd $(SITE) && npm run --silent browse

# Grafana is not needed: the numbers are those of Prometheus's own engine, the layout is that of the chart's files.
.PHONY: docs-pictures
docs-pictures: build ## Draw the recording of a demo and the dashboards with its numbers: docs/images (not in CI: each run draws other numbers)
	@mkdir -p $(CACHE); set -o pipefail; $(MAKE) --no-print-directory demo | tee $(CACHE)/demo.log
	@rm -f $(CACHE)/panels.json && PANELS=$(CACHE)/panels.json $(MAKE) --no-print-directory monitoring
	@cd $(SITE) && node demo.mjs $(CACHE)/demo.log && node dashboards.mjs $(CACHE)/panels.json

# UPDATE=true rewrites the outputs that the pages show. DOCS_FOCUS=bke runs the pages whose path has this in it.
.PHONY: docs-test
docs-test: build plugin controlplane $(TOOLS)/helm ## Run the commands of the pages against the sandbox and compare what they print with what the pages show
	@$(GO_BUILD) -o $(CACHE)/bin/ ./test/sandbox github.com/onsi/ginkgo/v2/ginkgo
	@$(E2E) --fail-on-empty $(if $(DOCS_FOCUS),--focus='$(DOCS_FOCUS)') ./test/e2e/docs

# UPDATE=true rewrites the outputs of these pages by what real nodes have printed.
.PHONY: docs-nodes
docs-nodes: ## Run the commands of the pages on installing and joining where servers are machines with a real kubelet (root on Linux)
	@MAKE="$(MAKE)" NODES_SUITE=test/e2e/docs NODES_FLAGS="-ginkgo.focus=get-started/(own-cluster|bke).md $(NODES_FLAGS)" test/e2e/nodes/nodes.sh

$(SITE)/node_modules/.package-lock.json: $(SITE)/package-lock.json
	@cd $(SITE) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && ln -sfn .vitepress/node_modules ../node_modules \
		&& touch node_modules/.package-lock.json

##@ Tools

.PHONY: controlplane
controlplane: $(or $(OUR_CONTROLPLANE),$(CONTROLPLANE_BIN)/controlplane) $(CONTROLPLANE_BIN)/kwok ## Build etcd, the Kubernetes control plane, kubectl and KWOK for the tests; KUBERNETES=oldest: of the oldest version that the chart admits

NODE := $(CACHE)/node

# The parts are modules of their own, and the control plane's packages are compiled already.
NODE_BINARIES := $(NODE)/bin/kubernetes $(NODE)/bin/containerd $(NODE)/bin/runc $(NODE)/bin/cni/ptp $(NODE)/bin/pause

.PHONY: node-binaries
node-binaries: $(NODE_BINARIES) ## Build what a real node of the tests runs: kubelet, kubeadm, kube-proxy, containerd, runc, CNI plugins (2 minutes once the control plane is built; needs Linux and libseccomp-dev)

.PHONY: node-image
node-image: node-binaries $(NODE)/root.built ## Build its root file system from Debian's packages: .cache/node/root (2 minutes; needs root and debootstrap)

.PHONY: helm
helm: $(TOOLS)/helm ## Build the Helm that the charts are tested with: .cache/tools/helm

.PHONY: clean
clean: ## Remove what was built (the Go build cache remains)
	rm -rf bin .cache .sandbox

$(STAMPS)/%:
	@mkdir -p $(@D) && rm -f $(STAMPS)/$(firstword $(subst @, ,$(@F)))@* && touch $@

kubernetes-ldflags = -s -w $(foreach part,gitVersion=$(1) gitMajor=$(word 1,$(subst ., ,$(1:v%=%))) gitMinor=$(word 2,$(subst ., ,$(1))),\
	-X k8s.io/component-base/version.$(part))

COMPONENTS := etcd kube-apiserver kube-controller-manager kube-scheduler kubectl

# In the recipes below: go build does not write a binary that is up to date, hence the touch.
$(CONTROLPLANE_BIN)/controlplane: $(call stamp,controlplane,$(addprefix test/support/controlplane/,go.mod go.sum main.go))
	@echo "building the Kubernetes $(KUBERNETES_VERSION) control plane of the tests (6 to 11 minutes on 2 cores the first time, seconds later)"
	@mkdir -p $(@D)
	@cd test/support/controlplane && $(GO_BUILD) -o $@ -ldflags "$(call kubernetes-ldflags,$(KUBERNETES_VERSION))" . && touch $@
	@for name in $(COMPONENTS); do ln -sfn controlplane $(@D)/$$name; done

# It shares no package with the other one. Without the tag, it has the clients of clouds that Kubernetes still had inside.
$(OLDEST_BIN)/controlplane: $(call stamp,controlplane-oldest,$(addprefix test/support/controlplane/oldest/,go.mod go.sum main.go))
	@echo "building the Kubernetes $(OLDEST_VERSION) control plane of the tests (4 to 9 minutes on 2 cores the first time, seconds later)"
	@mkdir -p $(@D)
	@cd test/support/controlplane/oldest && $(GO_BUILD) -tags providerless -o $@ -ldflags "$(call kubernetes-ldflags,$(OLDEST_VERSION))" . && touch $@
	@for name in $(COMPONENTS); do ln -sfn controlplane $(@D)/$$name; done

$(CONTROLPLANE_BIN)/kwok: $(call stamp,kwok,$(addprefix test/support/controlplane/kwok/,go.mod go.sum))
	@echo "building KWOK $(KWOK_VERSION) (3 minutes on 2 cores the first time)"
	@mkdir -p $(@D)
	@cd test/support/controlplane/kwok && $(GO_BUILD) -o $@ \
		-ldflags "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=$(KWOK_VERSION)" sigs.k8s.io/kwok/cmd/kwok && touch $@

$(NODE)/bin/kubernetes: $(call stamp,node-kubernetes,$(addprefix test/support/realnode/kubernetes/,go.mod go.sum main.go))
	@echo "building kubelet, kubeadm and kube-proxy $(KUBERNETES_VERSION) (a minute on 2 cores the first time)"
	@mkdir -p $(@D)
	@cd test/support/realnode/kubernetes && $(GO_BUILD) -o $@ -ldflags "$(call kubernetes-ldflags,$(KUBERNETES_VERSION))" . && touch $@

$(NODE)/bin/containerd: $(call stamp,node-containerd,$(addprefix test/support/realnode/containerd/,go.mod go.sum))
	@echo "building containerd $(CONTAINERD_VERSION) (a minute on 2 cores the first time)"
	@mkdir -p $(@D)
	@cd test/support/realnode/containerd && $(GO_BUILD) -tags 'no_btrfs no_devmapper no_zfs no_aufs' -o $(@D)/ \
		-ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=$(CONTAINERD_VERSION)" tool && touch $@

# The kubelet asks for a seccomp profile for every pod, which runc applies with a C library.
$(NODE)/bin/runc: $(call stamp,node-runc,$(addprefix test/support/realnode/runc/,go.mod go.sum))
	@mkdir -p $(@D)
	@pkg-config --exists libseccomp || { echo "runc needs libseccomp: apt-get install libseccomp-dev pkg-config"; exit 1; }
	@cd test/support/realnode/runc && CGO_ENABLED=1 go build -trimpath -tags 'netgo osusergo seccomp runc_nodmz' -o $@ \
		-ldflags "-s -w -extldflags -static -X main.version=$(RUNC_VERSION:v%=%)" github.com/opencontainers/runc && touch $@

$(NODE)/bin/cni/ptp: $(call stamp,node-cni,$(addprefix test/support/realnode/cni/,go.mod go.sum))
	@mkdir -p $(@D)
	@cd test/support/realnode/cni && $(GO_BUILD) -o $(@D)/ -ldflags "-s -w" tool && touch $@

$(NODE)/bin/pause: $(call stamp,node-pause,test/support/realnode/pause/main.go)
	@mkdir -p $(@D)
	@$(GO_BUILD) -o $@ -ldflags "-s -w" ./test/support/realnode/pause && touch $@

$(NODE)/root.built: $(NODE_BINARIES) $(call stamp,node-root,test/support/realnode/image.sh $(shell git ls-files -co test/support/realnode/files))
	@echo "building the root file system of real nodes (2 minutes the first time, seconds later)"
	@test/support/realnode/image.sh $(NODE)/bin $(NODE)/root && touch $@

$(TOOLS)/controller-gen: $(call stamp,controller-gen,$(addprefix hack/tools/,go.mod go.sum))
	@echo "building controller-gen (about a minute the first time)"
	@mkdir -p $(@D)
	@cd hack/tools && $(GO_BUILD) -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen && touch $@

$(TOOLS)/registry: $(call stamp,registry,$(addprefix hack/tools/registry/,go.mod go.sum))
	@mkdir -p $(@D)
	@cd hack/tools/registry && $(GO_BUILD) -o $@ github.com/google/go-containerregistry/cmd/registry && touch $@

$(TOOLS)/crane: $(call stamp,crane,$(addprefix hack/tools/registry/,go.mod go.sum))
	@mkdir -p $(@D)
	@cd hack/tools/registry && $(GO_BUILD) -o $@ github.com/google/go-containerregistry/cmd/crane && touch $@

# With it what stands in for Sigstore's services.
$(TOOLS)/cosign: $(call stamp,cosign,$(addprefix hack/tools/cosign/,go.mod go.sum sigstore/main.go))
	@echo "building cosign (2 to 4 minutes on 2 cores the first time)"
	@mkdir -p $(@D)
	@cd hack/tools/cosign && $(GO_BUILD) -ldflags "-s -w" -o $(@D)/ ./sigstore github.com/sigstore/cosign/v2/cmd/cosign && touch $@

$(TOOLS)/actionlint: $(call stamp,actionlint,$(addprefix hack/tools/checks/,go.mod go.sum))
	@mkdir -p $(@D)
	@cd hack/tools/checks && $(GO_BUILD) -o $@ github.com/rhysd/actionlint/cmd/actionlint && touch $@

$(TOOLS)/helm-docs: $(call stamp,helm-docs,$(addprefix hack/tools/helm-docs/,go.mod go.sum))
	@mkdir -p $(@D)
	@cd hack/tools/helm-docs && $(GO_BUILD) -o $@ github.com/norwoodj/helm-docs/cmd/helm-docs && touch $@

# Its parsers are C.
$(TOOLS)/vale: $(call stamp,vale,$(addprefix hack/tools/vale/,go.mod go.sum))
	@echo "building Vale (about 2 minutes on 2 cores the first time)"
	@mkdir -p $(@D)
	@cd hack/tools/vale && CGO_ENABLED=1 go build -trimpath -ldflags "-s -w" -o $@ github.com/vale-cli/vale/v3/cmd/vale && touch $@

$(TOOLS)/govulncheck: $(call stamp,govulncheck,$(addprefix hack/tools/checks/,go.mod go.sum))
	@mkdir -p $(@D)
	@cd hack/tools/checks && $(GO_BUILD) -o $@ golang.org/x/vuln/cmd/govulncheck && touch $@

# Without these Helm would report Kubernetes 1.20.
HELM_KUBERNETES := $(foreach package,chartutil lint/rules,$(foreach part,Major=$(KUBERNETES_MAJOR) Minor=$(KUBERNETES_MINOR),\
	-X helm.sh/helm/v3/pkg/$(package).k8sVersion$(part)))

$(TOOLS)/helm: $(call stamp,helm,$(addprefix hack/tools/helm/,go.mod go.sum))
	@echo "building Helm (2 to 3 minutes on 2 cores the first time)"
	@mkdir -p $(@D)
	@cd hack/tools/helm && $(GO_BUILD) -o $@ -ldflags "-s -w $(HELM_KUBERNETES) \
		-X helm.sh/helm/v3/internal/version.version=$$(go list -m -f '{{.Version}}' helm.sh/helm/v3)" \
		helm.sh/helm/v3/cmd/helm && touch $@

$(TOOLS)/golangci-lint: $(call stamp,golangci-lint,$(addprefix hack/tools/golangci/,go.mod go.sum))
	@echo "building golangci-lint (2 to 5 minutes on 2 cores the first time)"
	@mkdir -p $(@D)
	@cd hack/tools/golangci && $(GO_BUILD) -ldflags "-s -w" -o $@ \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint && touch $@
