# Every target works from a fresh clone on a Debian machine with a Rust
# toolchain: `setup` installs what is missing.

.DEFAULT_GOAL := help
SHELL := /bin/bash
CARGO ?= cargo
# Cargo takes the variable for the path of itself.
unexport CARGO
FUZZ_SECONDS ?= 600
# What `reliability` and `soak` do: how often, on what, from which seed (at
# random if empty), for how long.
RUNS ?= 200
BACKENDS ?= memory redis redis-sentinel redis-cluster etcd
SEED ?=
MINUTES ?= 10
# For how long the clients of each Redis lock library contend for a lock.
FRONT_STRESS_SECONDS ?= 2
SOCKETS ?= $(CURDIR)/target/run/sockets
# More flags of the sidecar of `make run`: --dapr-http-port 3510 --dapr-grpc-port 50010, for one.
SIDECAR_FLAGS ?=

.PHONY: help
help: ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9_-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what all targets need from Debian (protoc, redis-server, etcd, Chromium, …)
	@scripts/setup

.PHONY: setup-test
setup-test: ## Install only what `make test` needs (protoc, redis-server, etcd, promtool)
	@scripts/setup test

.PHONY: setup-build
setup-build: ## Install only what the build needs (protoc)
	@scripts/setup build

.PHONY: build
build: setup ## Build everything
	$(CARGO) build --workspace --all-targets

# Without jemalloc, whose compilation took a third of a first build.
DEMO = --bin leasehold --example tour --no-default-features --features etcd,redis

.PHONY: run
run: setup-build ## Build, show a lock's life over the socket, then serve the Dapr API on the memory store
	@echo "building (the first time takes two to four minutes on two cores) ..."
	@$(CARGO) build $(DEMO)
	@target/debug/examples/tour --leasehold target/debug/leasehold --socket-folder $(SOCKETS) --no-wait
	@mkdir -p target/run/components && cp components/memory.yaml target/run/components/
	@echo
	@echo "Now the sidecar, on the memory store (Ctrl-C ends it). In another terminal take a lock; taken"
	@echo "twice, the second call waits. Then release it by its lockID:"
	@echo
	@echo "  curl -d '{\"ttl\":\"30s\",\"wait\":\"10s\"}' http://127.0.0.1:3500/v1.0-alpha2/lock/lockstore/order-1"
	@echo "  curl -X DELETE -d '{\"lockID\":\"...\"}' http://127.0.0.1:3500/v1.0-alpha2/lock/lockstore/order-1"
	@echo
	@exec target/debug/leasehold sidecar --app-id demo --resources-path target/run/components $(SIDECAR_FLAGS)

.PHONY: tour
tour: setup-build ## Show a lock's life over the socket, then serve the socket until Ctrl-C
	@$(CARGO) build $(DEMO)
	@exec target/debug/examples/tour --leasehold target/debug/leasehold --socket-folder $(SOCKETS)

.PHONY: lint
lint: setup ## rustfmt and clippy, warnings as errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --test '*' -- -D warnings
	for features in "" etcd redis; do \
		$(CARGO) check --quiet --package leasehold --no-default-features --features "$$features" || exit 1; \
	done
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --workspace --no-deps --quiet

.PHONY: deny
deny: ## Licences, bans and sources of every dependency (installs cargo-deny)
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check licenses bans sources

.PHONY: programs
programs: setup-test ## Build leasehold and what starts its servers for tests
	$(CARGO) build --workspace --bins

.PHONY: test
test: programs ## Test everything here, on the Redis and the etcd that Debian has
	CARGO="$(CARGO)" scripts/test

.PHONY: test-all
test-all: setup programs daprd ## `test`, and etcd 3.6, hostile clients, faults, a browser, daprd, SDKs, clients (needs Go, Node, Python, Java)
	CARGO="$(CARGO)" scripts/test --all

.PHONY: heavy-test
heavy-test: redis-script-test daprd-test clients-test lock-trees planted fuzz reliability ## What a release needs besides: planted defects, fuzzing, long histories (hours)

TREES ?= 300
.PHONY: lock-trees
lock-trees: programs ## Run commands under locks, TREES random process trees in which random processes are killed
	LEASEHOLD="$${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/leasehold" LEASEHOLD_SEEDS=$(TREES) \
		$(CARGO) test --workspace --test lock_command -- --nocapture random

.PHONY: redis-script-test
redis-script-test: programs ## The tests of the Redis backend on servers without functions
	LEASEHOLD="$${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/leasehold" LEASEHOLD_TEST_WITHOUT_FUNCTIONS=1 \
		$(CARGO) test --workspace --test redis -- --skip cost

SEEDS ?= 20000

.PHONY: sim
sim: ## Run the state machines under simulated time, SEEDS schedules each; prints seeds a minute
	LEASEHOLD_SEEDS=$(SEEDS) $(CARGO) test --package leasehold-memory --test sim -- --nocapture
	LEASEHOLD_SEEDS=$(SEEDS) $(CARGO) test --package leasehold-held --package leasehold-etcd --package leasehold-supervise --lib -- --nocapture tests::chance schedules simulation

.PHONY: planted
planted: setup ## Plant known defects in a copy of the sources; each must be found by its test
	@reliability/plant

.PHONY: fuzz
fuzz: setup ## Fuzz every parser at an edge, FUZZ_SECONDS each (default 600)
	@scripts/fuzz $(FUZZ_SECONDS)

.PHONY: fuzz-smoke
fuzz-smoke: setup ## The same for 15 s each
	@scripts/fuzz 15

.PHONY: reliability
reliability: setup ## 200 checked runs under faults on each backend, hours in all (RUNS, SEED, BACKENDS)
	$(CARGO) build --release --bin leasehold --bin leasehold-reliability --package leasehold --package leasehold-reliability
	@failed=0; for backend in $(BACKENDS); do \
		target/release/leasehold-reliability run --backend $$backend --runs $(RUNS) \
			$(if $(SEED),--seed $(SEED)) || failed=1; \
	done; exit $$failed

.PHONY: soak
soak: setup ## Checked rounds under faults over long-lived processes (MINUTES)
	$(CARGO) build --release --bin leasehold --bin leasehold-reliability --package leasehold --package leasehold-reliability
	target/release/leasehold-reliability soak --minutes $(MINUTES)

.PHONY: daprd
daprd: ## Build a daprd that loads pluggable lock stores (needs Go; minutes the first time)
	@conformance/daprd/build

.PHONY: daprd-test
daprd-test: setup programs daprd ## Test the real daprd and Dapr's SDKs with leasehold (needs Go, Node, Python, Java)
	conformance/daprd/build --stock
	conformance/sdk/run --setup-only
	cd deploy && go test -count=1 ./...
	cd conformance/daprd && go test -trimpath -count=1 -parallel 2 -timeout 20m ./...

.PHONY: thirdparty-test
thirdparty-test: setup ## Hold a small lock store in Python to the conformance suite (needs Python)
	CARGO="$(CARGO)" conformance/thirdparty/run.sh

.PHONY: clients-test
clients-test: setup programs daprd ## Check the client libraries (needs Go, Node, Python, Java)
	clients/run

.PHONY: redis-front-test
redis-front-test: setup programs ## Check lock libraries for Redis, newest releases (needs Go, Node, Python, Java)
	FRONT_STRESS_SECONDS=$(FRONT_STRESS_SECONDS) conformance/redis-front/run --newest

.PHONY: bench
bench: setup ## Measure leasehold against its peers, both sides in one run
	$(CARGO) build --release --bin leasehold
	$(CARGO) run --release --quiet --package leasehold-bench -- all --leasehold target/release/leasehold

.PHONY: clean
clean: ## Remove what was built
	$(CARGO) clean
