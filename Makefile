# nylorun: the targets a person needs. `make help` lists them.

CARGO   ?= cargo
# `make run PROFILE=dev` builds faster and runs slower.
PROFILE ?= release
ARGS    ?=

TARGET_DIR := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
BINARY     := $(TARGET_DIR)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/nylorun
CARGO_HOME ?= $(HOME)/.cargo
DEB_NEEDS  := build-essential pkg-config libssl-dev
# What tests with containers need, beside root: a daemon that they start themselves.
DEB_DOCKER := docker.io
# What the Python example needs.
DEB_PYTHON := python3 python3-cryptography

.DEFAULT_GOAL := help
.PHONY: help run build install test test-s3 lint fmt bench doc needs needs-test

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

needs: # Debian packages that the build needs: installed by root, told to everybody else
	@command -v dpkg-query >/dev/null 2>&1 || exit 0; \
	missing=""; \
	for package in $(DEB_NEEDS); do \
		dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; \
	done; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" = 0 ]; then \
		echo "installing$$missing"; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; \
	else \
		echo "The build needs Debian packages. Run this, then make again:"; \
		echo "  sudo apt-get install$$missing"; \
		exit 1; \
	fi

needs-test: needs # Debian packages of some tests: installed by root, and done without by everybody else
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || exit 0; \
	missing=""; \
	{ command -v dockerd && command -v docker-init; } >/dev/null 2>&1 || missing="$(DEB_DOCKER)"; \
	/usr/bin/python3 -c 'import cryptography' 2>/dev/null || missing="$$missing $(DEB_PYTHON)"; \
	[ -z "$$missing" ] && exit 0; \
	echo "installing $$missing"; \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; } || true

build: needs ## Build the binary (PROFILE=dev builds faster)
	$(CARGO) build --workspace --bins --profile $(PROFILE)

install: build ## Put `nylorun` beside cargo, where shells find it
	@mkdir -p "$(CARGO_HOME)/bin"
	install -m 755 "$(BINARY)" "$(CARGO_HOME)/bin/nylorun"

# `nylorun` is linked beside cargo unless there is one on the path already, so that the other terminal finds it.
run: build ## Build and start on an embedded store with a sample agent
	@if ! command -v nylorun >/dev/null 2>&1 && [ -d "$(CARGO_HOME)/bin" ] && [ ! -e "$(CARGO_HOME)/bin/nylorun" ]; then \
		ln -s "$$(realpath "$(BINARY)")" "$(CARGO_HOME)/bin/nylorun" && \
		echo "linked $(CARGO_HOME)/bin/nylorun -> $(BINARY)"; \
	fi
	@exec "$(BINARY)" serve --sample $(ARGS)

test: needs-test ## Run every test: unit, simulation, end to end with the real binary
	@if [ "$$(id -u)" = 0 ] && { command -v dockerd && command -v docker-init; } >/dev/null 2>&1; then \
		filter="all()"; \
	else \
		echo "*** Tests with containers are SKIPPED: they take root and the package $(DEB_DOCKER) ***"; \
		filter="not test(docker::)"; \
	fi; \
	if command -v cargo-nextest >/dev/null 2>&1; then \
		echo "+ cargo nextest run --workspace -E '$$filter'" && $(CARGO) nextest run --workspace -E "$$filter" && \
		echo "+ cargo test --workspace --doc" && $(CARGO) test --workspace --doc; \
	else \
		echo "+ cargo test --workspace" && $(CARGO) test --workspace; \
	fi

S3_VENV := $(TARGET_DIR)/s3-venv

test-s3: needs ## Run the tests of artifacts in S3 against a server that speaks it, which is installed into target/
	@[ -x $(S3_VENV)/bin/moto_server ] || { python3 -m venv $(S3_VENV) && $(S3_VENV)/bin/pip -q install 'moto[server]'; }
	@port=$$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'); \
	$(S3_VENV)/bin/moto_server -H 127.0.0.1 -p $$port >/dev/null 2>&1 & server=$$!; trap "kill $$server" EXIT; \
	for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1; python3 -c "import socket; socket.create_connection(('127.0.0.1', $$port))" 2>/dev/null && break; done; \
	NYLORUN_TEST_S3=http://127.0.0.1:$$port $(CARGO) test --workspace --features s3 --test s3 -- --include-ignored

lint: needs ## Check format, clippy's advice, and that each source file says what it owns
	$(CARGO) fmt --all -- --check
	@silent=$$(for file in $$(git ls-files -co --exclude-standard 'src/*.rs' 'actors/src/*.rs' | grep -v '/tests\.rs$$\|_tests\.rs$$\|/tests/'); do \
		[ ! -f $$file ] || head -n 1 $$file | grep -q '^//!' || echo "  $$file"; done); \
	if [ -n "$$silent" ]; then echo "these files do not begin with //! (what they own):"; echo "$$silent"; exit 1; fi
	$(CARGO) clippy --workspace --all-targets -- -D warnings

fmt: ## Format the code
	$(CARGO) fmt --all

bench: build ## Measure turns and appends with the built binary
	"$(BINARY)" bench appends --in-flight 64
	"$(BINARY)" bench turns --sessions 64 --turns 50
	"$(BINARY)" bench turns --sessions 1 --turns 500

doc: needs ## Build the API documentation of both crates
	$(CARGO) doc --workspace --no-deps --document-private-items
