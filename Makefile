# nylorun: the targets a person needs. `make help` lists them.

CARGO   ?= cargo
# `make run PROFILE=dev` builds faster and runs slower.
PROFILE ?= release
ARGS    ?=
# `make test ONLY='test(export)'` runs the tests of this nextest filter alone.
ONLY    ?= all()

TARGET_DIR := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
BINARY     := $(TARGET_DIR)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/nylorun
CARGO_HOME ?= $(HOME)/.cargo
DEB_NEEDS  := build-essential pkg-config libssl-dev
# What tests with containers need, beside root: a daemon that they start themselves.
DEB_DOCKER := docker.io
# What the Python example needs, and what a server that speaks S3 is installed with.
DEB_PYTHON := python3 python3-cryptography python3-pip
# What tests of artifacts in S3 need: that server, for the `python3` on the path, beside the other files of tests.
S3_SERVER  := $(TARGET_DIR)/tmp/s3-server
PIP_S3     := 'moto[s3]>=5.1,<6' flask flask-cors

.DEFAULT_GOAL := help
.PHONY: help run build install test lint fmt bench doc needs needs-test needs-s3

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
	{ /usr/bin/python3 -c 'import cryptography' && python3 -m pip --version; } >/dev/null 2>&1 || missing="$$missing $(DEB_PYTHON)"; \
	[ -z "$$missing" ] && exit 0; \
	echo "installing $$missing"; \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; } || true

needs-s3: needs-test # A server that speaks S3, from whatever pip is set up to ask: done without where it cannot be had
	@[ -n "$$NYLORUN_TEST_S3" ] || [ -d "$(S3_SERVER)" ] && exit 0; \
	echo "installing $(PIP_S3) into $(S3_SERVER)"; \
	rm -rf "$(S3_SERVER).part"; mkdir -p "$(S3_SERVER).part"; \
	if python3 -m pip install --quiet --retries 1 --target "$(S3_SERVER).part" $(PIP_S3) >"$(S3_SERVER).log" 2>&1; then \
		mv "$(S3_SERVER).part" "$(S3_SERVER)"; \
	else \
		tail -n 3 "$(S3_SERVER).log"; rm -rf "$(S3_SERVER).part"; \
	fi

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

test: needs-test needs-s3 ## Run every test: unit, simulation, end to end with the real binary
	@filter="$(ONLY)"; \
	if [ "$$(id -u)" != 0 ] || ! { command -v dockerd && command -v docker-init; } >/dev/null 2>&1; then \
		echo "*** Tests with containers are SKIPPED: they take root and the package $(DEB_DOCKER) ***"; \
		filter="($$filter) and not test(docker::)"; \
	fi; \
	if [ -z "$$NYLORUN_TEST_S3" ] && [ ! -d "$(S3_SERVER)" ]; then \
		echo "*** Tests of artifacts in S3 are SKIPPED: they take $(PIP_S3), which pip could not install ***"; \
		filter="($$filter) and not binary(s3)"; \
	fi; \
	if command -v cargo-nextest >/dev/null 2>&1; then \
		echo "+ cargo nextest run --workspace -E '$$filter'" && $(CARGO) nextest run --workspace -E "$$filter" && \
		echo "+ cargo test --workspace --doc" && $(CARGO) test --workspace --doc; \
	else \
		echo "+ cargo test --workspace" && $(CARGO) test --workspace; \
	fi

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
