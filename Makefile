# What people and CI run. `make` alone lists it.

CARGO_FLAGS ?= --locked
CARGO_DENY_VERSION := 0.20.2
CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/muster
CARGO_DENY := $(CACHE)/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny

# The crates that decide and size: they may not know a runtime, a client, a clock or chance.
PURE_CRATES := engine workload
IMPURE := tokio|futures|async-|kube|k8s-openapi|hyper|tower|axum|mio|socket2|rand|fastrand|getrandom|jiff|chrono|time|rayon|reqwest

.DEFAULT_GOAL := help
.PHONY: help tools build test test-unit test-e2e lint fmt clippy doc purity deny advisories demo bench-e2e bench-engine soak crds

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

tools: ## build all real components that the tests need into the cache (35 min the first time, then seconds)
	@cargo run $(CARGO_FLAGS) --quiet -p e2e --bin testbed -- tools

build: ## release build of muster, kubectl-muster and testbed, in target/release
	cargo build $(CARGO_FLAGS) --release -p muster -p cli -p e2e --bins

test: lint test-unit test-e2e ## everything that CI runs

# Random cases are the same in every run, so that a red run is about the change that it tests.
# `make test-unit PROPTEST_RNG_SEED=$$RANDOM PROPTEST_CASES=1000` looks for new ones.
test-unit: export PROPTEST_RNG_SEED ?= 20261121
test-unit: ## the tests that need no control plane (seconds once built)
	cargo test $(CARGO_FLAGS) --workspace --exclude e2e
	cargo test $(CARGO_FLAGS) -p e2e --lib --bins

# How many run at a time is up to the tests (e2e/tests/e2e/plane.rs); whoever waits for a turn holds a
# thread.
test-e2e: tools ## the end-to-end tests on a real local control plane
	cargo build $(CARGO_FLAGS) -p muster -p cli
	RUST_TEST_THREADS=40 cargo test $(CARGO_FLAGS) -p e2e --test "*"

lint: fmt clippy purity deny doc ## format, clippy, purity of the core, dependencies, links of the docs

fmt:
	cargo fmt --all --check

clippy:
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings

doc:
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

demo: ## three clusters, the examples, and 150 jobs of a real trace, live (KEEP=1 leaves it up)
	@cargo build $(CARGO_FLAGS) --quiet -p muster -p cli
	@cargo run $(CARGO_FLAGS) --quiet -p e2e --bin demo

bench-e2e: ## the numbers of the path on a real control plane, as JSON in target/bench-e2e.json
	@cargo build $(CARGO_FLAGS) --quiet --release -p muster
	@cargo run $(CARGO_FLAGS) --quiet --release -p e2e --bin bench -- --out target/bench-e2e.json

bench-engine: ## what decisions cost and how good they are, as JSON in target/bench-engine.json (TRACES=DIR for the traces)
	@cargo bench $(CARGO_FLAGS) --quiet -p sim --bench engine -- --out $(CURDIR)/target/bench-engine.json $(if $(TRACES),--traces $(abspath $(TRACES)))

soak: tools ## the long end-to-end tests
	cargo build $(CARGO_FLAGS) -p muster -p cli
	cargo test $(CARGO_FLAGS) -p e2e --tests -- --ignored --test-threads=1

crds: ## write crds/yaml anew from the types
	UPDATE_CRDS=1 cargo test $(CARGO_FLAGS) --quiet -p crds
