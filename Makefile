# What people and CI run. `make` alone lists it.

CARGO_FLAGS ?= --locked
CARGO_DENY_VERSION := 0.20.2
FRESH := machine::fresh::fresh_streams
CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/muster
CARGO_DENY := $(CACHE)/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny

# The crates that decide and size: they may not know a runtime, a client, a clock or chance.
PURE_CRATES := engine workload
IMPURE := tokio|futures|async-|kube|k8s-openapi|hyper|tower|axum|mio|socket2|rand|fastrand|getrandom|jiff|chrono|time|rayon|reqwest

# Where cargo puts programs, and what the last run of the end-to-end tests wrote down.
DEBUG := $(or $(CARGO_TARGET_DIR),target)/debug
RECORD := $(if $(E2E_DIR),$(E2E_DIR),$(or $(CARGO_TARGET_DIR),target)/tmp)/e2e-record.jsonl

# Everything is built for the whole workspace, also where one program is wanted: cargo chooses the
# features of dependencies by what is built together, and another choice builds the whole Kubernetes
# stack once more.
WORKSPACE := $(CARGO_FLAGS) --workspace

.DEFAULT_GOAL := help
.PHONY: help tools programs build test test-unit test-fresh test-e2e lint words sizes types arrows fmt clippy doc purity deny advisories demo bench-e2e bench-engine soak crds e2e-idle

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

# Random cases are the same in every run, so that a red run is about the change that it tests.
# `make test-unit PROPTEST_RNG_SEED=$$RANDOM PROPTEST_CASES=1000` looks for new ones.
test-unit: export PROPTEST_RNG_SEED ?= 20261121
test-unit: ## the tests that need no control plane (seconds once built)
	cargo test $(WORKSPACE)

test-fresh: ## half a minute of random streams that no run had before (FRESH_SEED=N gives one again)
	cargo test $(WORKSPACE) --test engine -- --ignored --nocapture --exact $(FRESH)

# How many run at a time is up to the stories (e2e/src/harness/turns.rs); each that waits for its turn
# holds a thread. The run ends itself after 25 minutes; `timeout` is for a run that cannot.
test-e2e: tools ## the end-to-end tests on a real local control plane
	@RUST_TEST_THREADS=256 timeout --kill-after=10s 27m cargo test $(WORKSPACE) --test e2e; status=$$?; \
	$(DEBUG)/report $(RECORD) || status=1; exit $$status

e2e-idle: ## take over the last run's times of waits, where they are shorter, as those of an idle machine
	$(DEBUG)/report $(RECORD) --learn

lint: words sizes types arrows fmt clippy purity deny ## words, sizes, types, arrows, format, clippy, purity of the core, dependencies

words: ## no word that is not used any more, in names, comments and texts (.ci/words.list)
	@.ci/words --self-test
	@.ci/words

sizes: ## no line over 120 characters, no source over 500 lines
	@.ci/sizes --self-test
	@.ci/sizes

types: ## no two types of the workspace with one name
	@.ci/types --self-test
	@.ci/types

fmt:
	cargo fmt --all --check

clippy:
	cargo clippy $(WORKSPACE) --all-targets -- -D warnings
	@# --all-targets leaves out tests with `test = false`, also one that is named beside it.
	cargo clippy $(WORKSPACE) --test e2e -- -D warnings

arrows: ## the engine's folders import only what the list of arrows allows
	@.ci/arrows --self-test
	@.ci/arrows

doc: ## links of the code's documentation (apart from `make test`: it takes minutes and finds words)
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

# Unoptimized: it runs for seconds, and building it is what takes long.
$(CARGO_DENY):
	cargo install --quiet --locked --debug --no-default-features cargo-deny \
	  --version $(CARGO_DENY_VERSION) --root $(CACHE)/cargo-deny-$(CARGO_DENY_VERSION)

demo: programs ## three clusters, the examples, and 150 jobs of a real trace, live (KEEP=1 leaves it up)
	@$(DEBUG)/demo

bench-e2e: ## the numbers of the path on a real control plane, as JSON in target/bench-e2e.json
	@cargo build $(CARGO_FLAGS) --quiet --release -p muster
	@cargo run $(CARGO_FLAGS) --quiet --release -p e2e --bin bench -- --out target/bench-e2e.json

bench-engine: ## what decisions cost and how good they are, as JSON in target/bench-engine.json (TRACES=DIR for the traces)
	@cargo bench $(CARGO_FLAGS) --quiet -p sim --bench engine -- --out $(CURDIR)/target/bench-engine.json $(if $(TRACES),--traces $(abspath $(TRACES)))

soak: doc tools ## the long end-to-end tests, and 10,000 seeds of two leaders in virtual time
	MUSTER_SEEDS=10000 cargo test $(WORKSPACE) --test two_leaders
	E2E_DEADLINE_SECONDS=86400 cargo test $(WORKSPACE) --test e2e -- --ignored --test-threads=1

crds: ## write crds/yaml from the types
	UPDATE_CRDS=1 cargo test $(CARGO_FLAGS) --quiet -p crds
