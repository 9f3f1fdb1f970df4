# Targets for developers and CI. `make` without a target lists them.

CARGO_FLAGS ?= --locked
CARGO_DENY_VERSION := 0.20.2
FRESH := machine::fresh::fresh_streams
CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/muster
CARGO_DENY := $(CACHE)/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny

# The crates that describe, decide and compute sizes. They must not depend on a runtime, client, clock or
# randomness.
PURE_CRATES := facts engine workload
IMPURE := tokio|futures|async-|kube|k8s-openapi|hyper|tower|axum|mio|socket2|rand|fastrand|getrandom|jiff|chrono|time|rayon|reqwest

# The time of `make soak-oldest`.
SOAK_SECONDS ?= 900

# The folder of cargo's programs, and the record of the last run of the end-to-end tests.
DEBUG := $(or $(CARGO_TARGET_DIR),target)/debug
RECORD := $(if $(E2E_DIR),$(E2E_DIR),$(or $(CARGO_TARGET_DIR),target)/tmp)/e2e-record.jsonl

# Development builds are of the whole workspace, even for one program: cargo chooses the features of
# dependencies by what it builds together, and other features would build the Kubernetes libraries again.
WORKSPACE := $(CARGO_FLAGS) --workspace

.DEFAULT_GOAL := help
.PHONY: help tools programs build test test-unit test-fresh test-e2e lint words sizes types openings arrows fmt clippy doc purity deny advisories demo bench-e2e bench-engine soak soak-oldest image-binary test-release crds e2e-idle image release manifests

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

tools: programs ## build all real components that the tests need into the cache (25 min the first time, then seconds)
	@$(DEBUG)/testbed tools

programs:
	@cargo build $(WORKSPACE) --bins

build: ## release build of muster and kubectl-muster, in target/release
	cargo build $(CARGO_FLAGS) --release -p muster -p cli

test: ## everything that CI runs
	@.ci/phase begin
	@.ci/phase programs $(MAKE) programs
	@.ci/phase tools $(MAKE) tools
	@.ci/phase lint $(MAKE) lint
	@.ci/phase unit $(MAKE) test-unit
	@.ci/phase fresh $(MAKE) test-fresh
	@.ci/phase e2e $(MAKE) test-e2e
	@.ci/phase end

# Random cases are the same in every run, so that a failure is due to the tested change.
# `make test-unit PROPTEST_RNG_SEED=$$RANDOM PROPTEST_CASES=1000` tries new ones.
test-unit: export PROPTEST_RNG_SEED ?= 20261121
test-unit: ## the tests that need no control plane (seconds once built)
	cargo test $(WORKSPACE)

# New with each tree of the repository, and the same wherever that is tested: a commit that passes here passes elsewhere.
test-fresh: export FRESH_SEED ?= $(shell printf %d 0x$$(git rev-parse 'HEAD^{tree}' | cut -c1-8))
test-fresh: export FRESH_BATCHES ?= 12
test-fresh: ## random streams that no other commit has tried (FRESH_SEED=N FRESH_BATCHES=1 repeats one)
	cargo test $(WORKSPACE) --test engine -- --ignored --nocapture --exact $(FRESH)

# The stories decide how many run at a time (e2e/src/harness/turns.rs); each waiting story holds a
# thread. The run ends itself after 30 minutes; `timeout` ends a run that hangs.
# If all tests passed, also those that are no stories, and stories only took too long, the slowest are repeated with
# little beside them: what is slow is slow again, and a machine that had much else to do fails no run.
test-e2e: tools ## the end-to-end tests on a real local control plane, with a third of e2e/rotating.list
	@left_out=$$(.ci/rotating) && RUST_TEST_THREADS=256 timeout --kill-after=10s 32m \
	  cargo test $(WORKSPACE) --test e2e -- --exact $$left_out; status=$$?; \
	$(DEBUG)/report $(RECORD) --repeat $(RECORD).repeat; verdict=$$?; \
	if [ $$status -eq 0 ] && [ $$verdict -ne 0 ] && [ -s $(RECORD).repeat ]; then \
	  mv $(RECORD) $(RECORD).first && RUST_TEST_THREADS=256 E2E_DEADLINE_SECONDS=600 timeout --kill-after=10s 12m \
	    cargo test $(WORKSPACE) --test e2e -- --exact $$(cat $(RECORD).repeat); status=$$?; \
	  $(DEBUG)/report $(RECORD) --first $(RECORD).first; verdict=$$?; \
	fi; [ $$status -eq 0 ] && [ $$verdict -eq 0 ]

# The image's binary without LTO, in many parts: fat LTO takes minutes more (docs/decisions/release-profile.md).
image-binary: ## the static binary of the image, as CI builds it (profile release-ci), in target/image/amd64
	CARGO_INCREMENTAL=0 PROFILE=release-ci BINARIES=only deploy/build-image amd64

test-release: tools image-binary ## the ten stories of e2e/release.list with the static binary of the image
	@stories=$$(.ci/stories e2e/release.list) && export MUSTER_BIN=$(CURDIR)/target/image/amd64/muster && \
	$$MUSTER_BIN --version && RUST_TEST_THREADS=256 timeout --kill-after=10s 15m \
	  cargo test $(WORKSPACE) --test e2e -- --exact $$stories; status=$$?; \
	$(DEBUG)/report $(RECORD) --stories-only || status=1; exit $$status

e2e-idle: ## update the table of idle times with the shorter waits of the last run
	$(DEBUG)/report $(RECORD) --learn

lint: words sizes types openings arrows fmt clippy purity deny ## words, sizes, types, docs, arrows, format, clippy, purity of the core, dependencies

words: ## no retired words in names, comments and texts (.ci/words.list)
	@.ci/words --self-test
	@.ci/words

sizes: ## no line over 120 characters, no source over 500 lines
	@.ci/sizes --self-test
	@.ci/sizes

types: ## no two types of the workspace with one name
	@.ci/types --self-test
	@.ci/types

openings: ## documentation of functions opens with a verb
	@.ci/openings --self-test
	@.ci/openings

fmt:
	cargo fmt --all --check

clippy:
	cargo clippy $(WORKSPACE) --all-targets -- -D warnings
	@# --all-targets omits tests with `test = false`, even if --test names one.
	cargo clippy $(WORKSPACE) --test e2e -- -D warnings

arrows: ## folders of engine and controller, and users of the engine, are those that the lists of arrows allow
	@.ci/arrows --self-test
	@.ci/arrows

doc: ## check the links of the code's documentation (not part of `make test`: it takes minutes)
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --quiet --workspace --no-deps --document-private-items

purity: ## the core depends on no runtime, client, clock or randomness
	@for crate in $(PURE_CRATES); do \
	  tree=$$(cargo tree $(CARGO_FLAGS) -p $$crate -e normal --target all --prefix none --format '{p}') || exit 1; \
	  found=$$(echo "$$tree" | cut -d' ' -f1 | sort -u | grep -E '^($(IMPURE))' | tr '\n' ' '); \
	  if [ -n "$$found" ]; then echo "$$crate must be pure and depends on: $$found" >&2; exit 1; fi; \
	  echo "$$crate is pure"; \
	done

deny: $(CARGO_DENY) ## licences, banned crates and sources of dependencies
	$(CARGO_DENY) --log-level error check bans licenses sources

advisories: $(CARGO_DENY) ## known vulnerabilities of dependencies (needs the network)
	$(CARGO_DENY) check advisories

# The build is unoptimized, because it takes longer than the runs.
$(CARGO_DENY):
	cargo install --quiet --locked --debug --no-default-features cargo-deny \
	  --version $(CARGO_DENY_VERSION) --root $(CACHE)/cargo-deny-$(CARGO_DENY_VERSION)

demo: programs ## three clusters, the examples, and 150 jobs of a real trace, live (KEEP=1 leaves it up)
	@$(DEBUG)/demo

bench-e2e: ## measure the path on a real control plane; writes target/bench-e2e.json
	@cargo build $(CARGO_FLAGS) --quiet --release -p muster
	@cargo run $(CARGO_FLAGS) --quiet --release -p e2e --bin bench -- --out target/bench-e2e.json

bench-engine: ## measure the cost and quality of decisions; writes target/bench-engine.json (TRACES=DIR for the traces)
	@cargo bench $(CARGO_FLAGS) --quiet -p sim --bench engine -- --out $(CURDIR)/target/bench-engine.json $(if $(TRACES),--traces $(abspath $(TRACES)))

# A story for which no time is left stays the oldest.
soak-oldest: programs ## the soak stories that ran longest ago, for SOAK_SECONDS (WRITE=--write adds them to e2e/soak.ledger)
	$(DEBUG)/soak --seconds $(SOAK_SECONDS) --record $(RECORD) --local $(CACHE)/soak.ledger $(WRITE)

soak: doc tools ## the long end-to-end tests, 10,000 seeds of two leaders in virtual time, and new random streams
	MUSTER_SEEDS=10000 cargo test $(WORKSPACE) --test two_leaders
	PROPTEST_CASES=300 cargo test $(WORKSPACE) --test engine machine::
	RUST_TEST_THREADS=256 E2E_DEADLINE_SECONDS=86400 cargo test $(WORKSPACE) --test e2e
	$(DEBUG)/soak --record $(RECORD) --local $(CACHE)/soak.ledger --write
	$(DEBUG)/report $(RECORD) --stories-only

crds: ## write crds/yaml from the types
	UPDATE_CRDS=1 cargo test $(CARGO_FLAGS) --quiet -p crds

image: ## OCI image of a static binary in target/image/muster.tar (IMAGE=NAME:TAG, ARCHS="amd64 arm64")
	@deploy/build-image $(ARCHS)

release: ## everything of a release in target/release-VERSION: binaries, image, chart, CRDs, SBOMs, digests (RELEASING.md)
	@deploy/release

manifests: programs ## write what is generated in deploy: the rendered chart, and the objects in the chart of the control plane
	@$(DEBUG)/muster install --dry-run > $(DEBUG)/install.yaml
	@mv $(DEBUG)/install.yaml deploy/chart/muster-control-plane/files/install.yaml
	@cd testbed/tools/packaging && CGO_ENABLED=0 go tool helm template muster $(CURDIR)/deploy/chart/muster --namespace muster --skip-tests \
	  --kube-version 1.30 > $(CURDIR)/deploy/manifests/muster.yaml
