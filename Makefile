# karpenter-provider-bizflycloud. `make` lists the targets.
#
# A machine needs Go, make, git and a C compiler (for the race detector), and Node.js for the site of the pages: every other tool and every binary of the
# control plane comes from pinned Go modules, is built into .cache/ when first needed, and again only when its sources change.

SHELL := bash
# The toolchain of go.mod comes through the module proxy, even if the machine sets GOTOOLCHAIN=local.
export GOTOOLCHAIN := auto
.DEFAULT_GOAL := help

BINARY  := karpenter-provider-bizflycloud
MODULE  := github.com/bizflycloud/karpenter-provider-bizflycloud
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git describe --always --dirty --exclude='*' --abbrev=7 2>/dev/null)
# The kubectl plugin is a module of its own.
PLUGIN  := cmd/kubectl-bizfly
CACHE   := $(CURDIR)/.cache
TOOLS   := $(CACHE)/tools
CORES   := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

# KUBERNETES=oldest is the oldest version that the charts admit, newest is the newest that can be had; without it, that of go.mod is used.
CONTROLPLANE := test/support/controlplane$(KUBERNETES:%=/%)
ifneq ($(filter-out oldest newest,$(KUBERNETES))$(if $(wildcard $(CONTROLPLANE)/main.go),,missing),)
$(error KUBERNETES=$(KUBERNETES): only "oldest" and "newest" are possible)
endif
OUR_CONTROLPLANE := $(CACHE)/controlplane$(KUBERNETES:%=-%)/bin
# Your own binaries win: KUBEBUILDER_ASSETS=/usr/local/kubebuilder/bin make test
KUBEBUILDER_ASSETS ?= $(OUR_CONTROLPLANE)
ifdef KUBERNETES
override KUBEBUILDER_ASSETS := $(OUR_CONTROLPLANE)
endif
export KUBEBUILDER_ASSETS

# Everything but the tests with the race detector, which needs C, is compiled with the same flags, so that the controller and
# its image, the control plane, the linter, the chaos and the demo share one build cache.
TRIMPATH := CGO_ENABLED=0 GOFLAGS="$(GOFLAGS) -trimpath"
GO_BUILD := CGO_ENABLED=0 go build -trimpath
STAMP    := -X sigs.k8s.io/karpenter/pkg/operator.Version=$(VERSION) -X $(MODULE)/internal/operator.commit=$(COMMIT)

# More flags for Ginkgo: make test PKG=./internal/x GINKGO_FLAGS='--focus="should adopt"'. GINKGO_SEED repeats a random order.
GINKGO_FLAGS ?=
# CI trusts no earlier result. Elsewhere go test repeats only what has changed.
COUNT ?= $(if $(CI),1)
GINKGO = $(TRIMPATH) go tool ginkgo run --timeout=$(or $(TIMEOUT),2h) --fail-on-empty $(if $(CI),--no-color)
# What the suites with whole processes start.
PROCESSES = CONTROLLER="$(CURDIR)/bin/$(BINARY)" SANDBOX="$(CACHE)/bin/sandbox" HELM="$(TOOLS)/helm" $(TRIMPATH)

.PHONY: help
help: ## List the targets
	@awk '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { split($$0, part, ":.*## "); printf "  %-18s %s\n", part[1], part[2] }' $(firstword $(MAKEFILE_LIST))
	@printf '\nTimes are those of 2 cores once what the target needs is built. The control plane takes 7 minutes once.\n'

##@ Build and run

.PHONY: build
build: ## Build the controller: bin/karpenter-provider-bizflycloud (seconds; 2 min the first time)
	$(GO_BUILD) -ldflags "$(STAMP)" -o bin/$(BINARY) ./cmd/controller

.PHONY: plugin
plugin: ## Build the kubectl plugin: bin/kubectl-bizfly (seconds)
	cd $(PLUGIN) && $(GO_BUILD) -ldflags "$(STAMP)" -o $(CURDIR)/bin/kubectl-bizfly .

# The registry of the project that the image is published from; yours: make image PUSH=true IMG=registry.example/karpenter TAG=v1
IMG            ?= cr-hn-1.bizflycloud.vn/31ff9581861a4d0ea4df5e7dda0f665d/karpenter-provider-bizflycloud
TAG            ?= $(VERSION)
PLATFORMS      ?= linux/amd64,linux/arm64
CONTAINER_TOOL ?= docker
# BUILDER_IMAGE and BASE_IMAGE are build arguments; empty means what hack/release/Dockerfile says.
IMAGE = IMG="$(IMG)$(if $(filter sandbox,$(WHAT)),-sandbox)" TAG="$(TAG)" VERSION="$(VERSION)" COMMIT="$(COMMIT)" PLATFORMS="$(PLATFORMS)" \
	DOCKERFILE="$(if $(filter sandbox,$(WHAT)),test/sandbox/)Dockerfile" CONTAINER_TOOL="$(CONTAINER_TOOL)" BUILDER_IMAGE="$(BUILDER_IMAGE)" \
	BASE_IMAGE="$(BASE_IMAGE)" BUILD_ARGS="$(BUILD_ARGS)" PUSH_ARGS="$(PUSH_ARGS)" hack/release/image.sh

.PHONY: image
image: ## Build the image; PUSH=true pushes it to IMG, WHAT=sandbox is the sandbox's, CONTAINER_TOOL=docker|buildah (5 min)
	@$(IMAGE) build
	@$(if $(filter true,$(PUSH)),$(IMAGE) push)

.PHONY: demo
demo: build controlplane sandbox-binary ## Show it: pods come, servers are launched, pods and servers are deleted (3 min)
	@$(DEMO) $(if $(SCRAPES),--scrapes $(SCRAPES))
	@$(if $(SCRAPES),cksum bin/$(BINARY) >$(SCRAPES)/controller)

.PHONY: sandbox
sandbox: build controlplane sandbox-binary ## Start the same and leave it running for kubectl: .sandbox/kubeconfig, .sandbox/env (a minute)
	@$(DEMO) --keep

# Where your own KUBEBUILDER_ASSETS lacks a binary (controller-manager, scheduler, KWOK), ours is used. The demo replaces the shell, unlike with
# `go run`, so that it gets Ctrl-C and its exit status is its own. What it scrapes is what the suite of monitoring reads.
SCRAPES ?= $(CACHE)/scrapes
DEMO = $(GO_BUILD) -o $(CACHE)/bin/demo ./test/measure/demo && $(PROCESSES) exec $(CACHE)/bin/demo

##@ Test

# The suites of the charts and of the pages start Helm, that of the pages also the plugin. Most suites wait for an API server half of their time.
.PHONY: test
test: apiserver $(TOOLS)/helm $(if $(PKG),$(if $(findstring e2e/docs,$(PKG)),plugin),plugin) ## Run go test -race; PKG=./internal/x, KUBERNETES=oldest|newest (12 min; under a minute where nothing has changed)
	@$(GO_BUILD) -o $(CACHE)/bin/gotest ./hack/gotest
	@$(CACHE)/bin/gotest -race -ldflags=-w -vet=off -timeout=60m -p=$$(($(CORES) + 2)) $(COUNT:%=-count=%) $(PKG) $(patsubst --%,-ginkgo.%,$(GINKGO_FLAGS))

# The suites that start whole processes. One or several of: lifecycle install migrations (without SUITE), docs faults nodes nodes-faults nodes-docs
# monitoring image core. FOCUS=, SEED=, RUNS= are for those that have them: test/README.md. Make exports what
# is given to it, so that the scripts read such variables themselves.
SUITE ?= lifecycle install $(if $(KUBERNETES),,migrations)
.PHONY: e2e
e2e: $(if $(filter-out nodes% core,$(SUITE)),build plugin controlplane $(TOOLS)/helm sandbox-binary) $(if $(filter image,$(SUITE)),$(TOOLS)/registry) ## Run suites with whole processes; SUITE=lifecycle|install|migrations|docs|faults|nodes|monitoring|image (20 min)
	@MAKE="$(MAKE)" SCRAPES="$(SCRAPES)" REGISTRY_BIN="$(TOOLS)/registry" \
		$(if $(filter image,$(SUITE)),$(filter-out hack/release/image.sh,$(IMAGE))) $(PROCESSES) test/e2e/run.sh $(SUITE)

# make test runs a few simulations, this one many: make chaos SEED=1000 RUNS=5000. It prints how to replay one that fails. Without RUNS, each call of
# each life is struck alone, and 200 pairs of calls in each life: make chaos POINTS=0 PAIRS=10000 PAIRS_FROM=0 GINKGO_FLAGS=--focus=life
.PHONY: chaos
chaos: ## Run 500 seeded fault-injection simulations, or RUNS of them from SEED (8 min; 2 min with RUNS=100)
	@mkdir -p $(CACHE)/reports/chaos
	@SEED="$(or $(SEED),1)" RUNS="$(or $(RUNS),500)" CHAOS_LOGS="$(CACHE)/reports/chaos" MONTH_DAYS="$(or $(MONTH_DAYS),$(if $(RUNS),7,30))" \
		POINTS="$(or $(POINTS),$(if $(RUNS),50,100000))" PAIRS="$(or $(PAIRS),$(if $(RUNS),20,200))" PAIRS_FROM="$(PAIRS_FROM)" $(GINKGO) --procs=$(CORES) $(GINKGO_FLAGS) ./test/simulation

# make test tries a few clusters and edits, this one many: make properties PROPERTY_SEEDS=1000 EDIT_PAIRS=10000, WHAT=consolidation|plan|edits for one.
run-property = $(if $(filter $(1),$(or $(WHAT),$(1))),@cd $(2) && $(TRIMPATH) PROPERTY_SEEDS="$(or $(PROPERTY_SEEDS),200)" EDIT_PAIRS="$(or $(EDIT_PAIRS),2000)" \
	go test -v -count=1 -timeout=2h $(3) -ginkgo.v $(if $(CI),-ginkgo.no-color))

.PHONY: properties
properties: apiserver ## Consolidate, plan and repack 200 random clusters; edit each field of the custom resources, and 2000 pairs (24 min)
	$(call run-property,consolidation,.,./test/component/properties)
	$(call run-property,plan,$(PLUGIN),./internal/plan ./internal/repack ./internal/oracle)
	$(call run-property,edits,.,./test/component/edits)

# make test runs the seeds of each target and what it has found once, this one searches: make fuzz FUZZTIME=10m
.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME=30s: answers, user data, prices, settings, names, manifests (8 min)
	@$(TRIMPATH) FUZZTIME="$(or $(FUZZTIME),30s)" hack/fuzz.sh

.PHONY: core-e2e
core-e2e: build controlplane sandbox-binary ## Run Karpenter core's own end-to-end suites against this provider; CORE_FLAGS='--sample 10' (70 min)
	@$(PROCESSES) test/e2e/core/run.sh $(CORE_FLAGS)

# SANDBOX=1: the same against the sandbox. MODES=all or nvme,regions-down: in modes of the sandbox, and MODE_RUNS=50 combinations from MODE_SEED=1.
.PHONY: realcloud
realcloud: $(if $(SANDBOX),controlplane sandbox-binary) ## Launch and delete ONE server of a real project, within a budget; SANDBOX=1 in the sandbox, MODES=all (20 to 40 min; 1 min)
	@E2E_CLOUD_SANDBOX="$(SANDBOX:%=true)" $(PROCESSES) test/realcloud/run.sh

.PHONY: bench
bench: $(if $(filter scale,$(WHAT)),build controlplane sandbox-binary) ## Compare ratios of benchmarks with bounds; WHAT=scale measures against kwok, WHAT=bill what workloads cost (4 min; hours; 7 min)
	@$(PROCESSES) test/measure/run.sh $(or $(WHAT),bench)

##@ Check and generate

LINT = $(TRIMPATH) GOLANGCI_LINT_CACHE=$(CACHE)/golangci-lint

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## Run golangci-lint (30 s; 4 min the first time)
	$(LINT) $(TOOLS)/golangci-lint run
	cd $(PLUGIN) && $(LINT) $(TOOLS)/golangci-lint run

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## Format the Go code and its imports (seconds)
	$(TOOLS)/golangci-lint fmt

.PHONY: generate
generate: $(addprefix $(TOOLS)/,controller-gen helm helm-docs) apiserver ## Write deep copies, CRDs, config/, golden files, reference pages and what the plugin's page shows (3 min)
	@$(TRIMPATH) hack/generate.sh all

.PHONY: presubmit
presubmit: lint ## Before you push: lint, and test each package that differs from main (under 5 min)
	@packages=$$(hack/changed.sh "$(BASE)") && if [ -n "$$packages" ]; then $(MAKE) --no-print-directory test PKG="$$packages"; \
		else echo "no package differs from main"; fi

.PHONY: verify
verify: $(addprefix $(TOOLS)/,golangci-lint controller-gen helm helm-docs actionlint vale) ## Check all that needs no cluster: generated files, charts, workflows, modules, lint, prose; ONLY='lint prose' (4 min)
	@ACTIONLINT=$(TOOLS)/actionlint VALE=$(TOOLS)/vale $(LINT) GOLANGCI_LINT=$(TOOLS)/golangci-lint HELM=$(TOOLS)/helm hack/verify.sh $(ONLY)

.PHONY: vulncheck
vulncheck: $(TOOLS)/govulncheck ## Search controller and plugin for known vulnerabilities (1 min; asks the Go vulnerability database)
	$(TOOLS)/govulncheck ./cmd/... ./internal/... ./pkg/...
	cd $(PLUGIN) && $(TOOLS)/govulncheck ./...

.PHONY: update-karpenter
update-karpenter: ## Move Karpenter core to VERSION=v1.16.0, and Kubernetes with it, in all modules (2 min)
	@hack/update-karpenter.sh $(if $(filter command,$(origin VERSION)),$(VERSION))

##@ Documentation

SITE := docs/.vitepress

.PHONY: docs
docs: $(SITE)/node_modules/.package-lock.json ## Check the pages, build the site (Node.js 20); TEST=true runs the commands, BROWSE=true opens it, PICTURES=true draws (1 min)
	@cd $(SITE) && npm run --silent check && npm run --silent build
	@$(if $(filter true,$(BROWSE)),cd $(SITE) && npm run --silent browse)
	@$(if $(filter true,$(TEST)),$(MAKE) --no-print-directory e2e SUITE=docs)
	@$(if $(filter true,$(PICTURES)),MAKE="$(MAKE)" $(SITE)/pictures.sh)

.PHONY: docs-dev
docs-dev: $(SITE)/node_modules/.package-lock.json ## Serve the site while you write: http://localhost:5173
	@cd $(SITE) && npm run dev

$(SITE)/node_modules/.package-lock.json: $(SITE)/package-lock.json
	@cd $(SITE) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && ln -sfn .vitepress/node_modules ../node_modules \
		&& touch node_modules/.package-lock.json

##@ Release

.PHONY: package
package: $(TOOLS)/helm ## Package charts and plugin for a release: .cache/charts, dist/plugin; WHAT=charts|plugin, TAG=, DIGEST=, PLUGIN_PLATFORMS= (3 min)
	@$(if $(filter-out plugin,$(or $(WHAT),charts)),HELM=$(TOOLS)/helm IMAGE="$(IMG):$(TAG)" DIGEST="$(DIGEST)" hack/release/charts.sh)
	@$(if $(filter-out charts,$(or $(WHAT),plugin)),hack/release/plugin.sh "$(TAG)" $(PLUGIN_PLATFORMS))

.PHONY: release-rehearsal
release-rehearsal: build controlplane $(addprefix $(TOOLS)/,helm registry cosign sigstore) ## Build, push, sign, verify and install what a release would, on this machine as root on Linux (11 min)
	@HELM=.cache/tools/helm REGISTRY_BIN="$(TOOLS)/registry" COSIGN_BIN="$(TOOLS)/cosign" SIGSTORE_BIN="$(TOOLS)/sigstore" hack/release/release.sh rehearse

# The checks get neither the flags nor the job server of this make.
.PHONY: everything
everything: ## Run every check of .ci/run, with a table at the end; ONLY="lint docs" (5 hours)
	@env -u MAKEFLAGS -u MAKEOVERRIDES -u MFLAGS -u MAKELEVEL .ci/run everything $(ONLY)

.PHONY: clean
clean: ## Remove what was built (the Go build cache remains)
	rm -rf bin .cache .sandbox

# What others need. The scripts do nothing where nothing has changed.

.PHONY: controlplane
controlplane: ## Build etcd, the Kubernetes control plane, kubectl and KWOK for the tests; KUBERNETES=oldest|newest (7 min once)
	@test/support/controlplane/build.sh $(ASSETS) kwok

ASSETS := $(if $(filter $(KUBEBUILDER_ASSETS),$(OUR_CONTROLPLANE)),$(or $(KUBERNETES),current))
.PHONY: apiserver
apiserver:
	@test/support/controlplane/build.sh $(ASSETS)

.PHONY: sandbox-binary
sandbox-binary:
	@$(GO_BUILD) -o $(CACHE)/bin/sandbox ./test/sandbox

$(TOOLS)/%: always
	@hack/tools/build.sh $*

.PHONY: always
always:
