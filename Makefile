# `make` lists the targets. They install into this folder (.venv), except for apt packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROTOS := $(wildcard schemas/icestream/*/*.proto)
FAST := not pipeline and not store and not slow and not kafka and not ebpf and not browser and not alone and not soak
# Tests wait for four fifths of their time, so there are four processes for each of the two CPUs of a small machine.
# Each takes half a GB. tests/conftest.py says which tests share a process, and which go first.
TOGETHER := -n 8
# What a test measured, when it fails on a machine that nobody can ask again.
TELLING := --showlocals
# With KEEP_SECONDS=1, `make test` keeps how long each file of tests took (tests/file_seconds.py).
export KEEP_SECONDS
# The steps of `make test`: first those that fail fast.
STEPS := setup-test ruff schemas-check bpf-check kafka mypy-and-test-ebpf test-together test-alone
# With it, every process would compile all modules again, and every process of pytest rewrite all tests.
unexport PYTHONDONTWRITEBYTECODE
CONTAINERS := tests/pipeline/test_containers.py
# Programs of the kinds of which public reports say that profilers show false frames, or none.
REPORTS := tests/collector/test_leaderless.py tests/collector/test_generated_code.py \
  tests/collector/unwind/test_programs.py tests/collector/unwind/cfi/test_go_stacks.py \
  tests/collector/unwind/test_return_probes.py tests/collector/processes/test_reused_ids.py \
  tests/collector/processes/test_same_identity.py tests/collector/processes/test_shared_pages.py \
  tests/collector/batches/test_turns.py tests/collector/processes/test_range_limit.py tests/collector/processes/test_copied_text.py \
  tests/collector/symbols/test_many_symbols.py tests/collector/runtimes/python/test_frames.py \
  tests/collector/runtimes/hotspot/test_frames.py
# Where tests/kubernetes/build_tools.sh puts what it builds.
TOOLS := $(or $(ICESTREAM_KUBERNETES),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/icestream/kubernetes)
# This clang built the committed eBPF objects; another major version builds other bytes.
BPF_CLANG := version 14\.

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-together test-ebpf test-alone test-fast lint ruff mypy-and-test-ebpf schemas schemas-check bpf-check kafka lock docs bench chaos fuzz containers image chart kubernetes kernels attacks reports test-more soak picture recording wheels release-inputs deb release clean setup-test nodes

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what icestream needs to run, with apt and into .venv
	@PYTHON=$(PYTHON) deploy/setup.sh run

demo: setup ## profile this machine while a small web service works, and show the CPU of its requests
	@$(BIN)/icestream demo

test: ## install what tests need, run all tests but those of `make test-more` and `make soak`, and print how long each step took
	@for step in $(STEPS); do \
	   begin=$$(date +%s); $(MAKE) --no-print-directory $$step || { echo "make $$step failed"; exit 1; }; \
	   took="$$took $$step $$(($$(date +%s) - begin)) s,"; \
	 done; echo "all steps passed:$${took%,}"

# The files that these passes read: pytest takes long to read all. A test of such a mark whose file does not name the
# mark fails (tests/conftest.py), so none is left out.
files-with = $(shell grep -rl --include=test_*.py 'mark\.$(1)' tests)

# ClickHouse and Kafka write many small files: into memory, if there is enough and programs may run from there.
in-memory = $(shell awk '/MemAvailable/ {exit $$2 < 8000000}' /proc/meminfo && awk '$$2 == "/dev/shm" && !/noexec/ {print \
   "PYTEST_DEBUG_TEMPROOT=/dev/shm"; exit}' /proc/mounts)

test-together:
	TEST_PASS=together $(in-memory) $(BIN)/pytest $(TOGETHER) $(TELLING) -m "not ebpf and not alone and not soak" --durations 15

# Each collector profiles the whole machine and reads the symbols of what runs there: no more than two at once.
test-ebpf:
	TEST_PASS=ebpf $(BIN)/pytest -n 2 $(TELLING) -m "ebpf and not alone and not soak" --durations 15 $(call files-with,ebpf)

test-alone:
	TEST_PASS=alone $(BIN)/pytest $(TELLING) -m "alone and not soak" --durations 5 $(call files-with,alone)

test-fast: setup-test ## run the tests that need no broker, no store, no kernel and no browser (a minute)
	$(BIN)/pytest -q -n 3 -m "$(FAST)"

lint: setup-test ruff ## check formatting, lint, types, and that each file of tests can be imported
	$(BIN)/mypy
	$(BIN)/pytest --collect-only -q >/dev/null

ruff:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# Tests of eBPF mostly wait. Beside them, mypy checks types and pytest compiles all tests, which otherwise each of its
# processes would do in the next step.
mypy-and-test-ebpf:
	@aside=$$(mktemp); { $(BIN)/mypy && $(BIN)/pytest --collect-only -q; } >$$aside 2>&1 & mypy=$$!; \
	  $(MAKE) --no-print-directory test-ebpf; result=$$?; \
	  wait $$mypy && echo "mypy found nothing" || { result=$$?; cat $$aside; }; rm $$aside; exit $$result

kafka: ## install Java and Maven, and fetch Apache Kafka into .venv: `icestream up` then uses it as its broker
	@deploy/setup.sh kafka

schemas: setup-test ## generate icestream/v1, icestream/pprof and icestream/pyroscope from schemas/
	$(BIN)/python -m grpc_tools.protoc -I schemas --python_out . --pyi_out . $(PROTOS)

schemas-check: setup-test
	@aside=$$(mktemp -d) && trap 'rm -r $$aside' EXIT \
	  && $(BIN)/python -m grpc_tools.protoc -I schemas --python_out $$aside --pyi_out $$aside $(PROTOS) \
	  && for package in $$(ls $$aside/icestream); do \
	       diff -r -x __init__.py -x __pycache__ $$aside/icestream/$$package icestream/$$package \
	         || { echo "icestream/$$package differs from what schemas/ generates: run make schemas"; exit 1; }; \
	     done && echo "the generated messages match schemas/"

bpf-check: setup-test
	@if clang --version | grep -q '$(BPF_CLANG)'; then $(MAKE) -s -C bpf check; \
	  else echo "eBPF objects not compared: they are built with clang $(BPF_CLANG)"; fi

# With the hash of every file, so that the image gets what was tested, whoever serves it.
lock: setup-test ## write the packages of the image, with their hashes, from pyproject.toml and constraints.txt
	@$(BIN)/uv pip compile -q deploy/docker/requirements.in -c constraints.txt --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --no-emit-package icestream --no-emit-package icestream-tracing -o deploy/docker/requirements.txt

.env: ## make a password for the ClickHouse of docker-compose.yml
	@umask 077 && printf 'CLICKHOUSE_PASSWORD=%s\n' "$$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" > $@

docs: setup-test ## write docs/settings.md from the settings
	@$(BIN)/python docs/generate_settings.py

bench: setup-test ## measure, and print one JSON object
	@$(BIN)/python -m benchmarks

chaos: setup-test kafka ## let EVENTS random things go wrong from SEED, and compare both stores with the input
	$(BIN)/python -m tests.chaos.run $(if $(SEED),--seed $(SEED)) $(if $(EVENTS),--events $(EVENTS))

fuzz: setup-test kafka ## send MESSAGES mutated messages a topic (200,000) to everything that reads, and check the promises
	$(BIN)/python -m tests.fuzz.run $(if $(MESSAGES),--messages $(MESSAGES)) $(if $(SEED),--seed $(SEED))

image: ## build the images of deploy/docker into Docker and dist/, with the times of the last commit (BASE: what they begin with)
	@$(PYTHON) deploy/docker/build_images.py $(if $(BASE),--base $(BASE)) $(if $(NETWORK),--build-option=--network=$(NETWORK))

chart: setup-test ## check the Helm chart, and pack it into dist/ (Go; builds Helm at first)
	@tests/kubernetes/build_tools.sh helm
	$(BIN)/pytest -q tests/kubernetes/test_chart.py
	@$(BIN)/python deploy/release/chart.py dist $(TOOLS)/helm

kubernetes: setup-test kafka ## install the Helm chart on a Kubernetes of two nodes, made here (root, Go; 15 minutes, at first 35). IMAGES: a folder that keeps the images
	@deploy/setup.sh kubernetes
	@tests/kubernetes/build_tools.sh node
	$(BIN)/python -m tests.kubernetes $(if $(IMAGES),--images $(IMAGES))

containers: setup-test ## install Docker if there is none, and test in real containers (root; minutes)
	@deploy/setup.sh containers
	$(BIN)/pytest $(CONTAINERS)

kernels: setup-test ## run the collector in virtual machines with KERNELS, by default all of 5.10 to 7 and aarch64 (root; an hour)
	@deploy/setup.sh kernels
	$(BIN)/python -m tests.kernels $(KERNELS)

attacks: setup-test ## attack a collector as an unprivileged user, while a victim is profiled (root; minutes, alone)
	$(BIN)/pytest -s -q -m soak tests/pipeline/test_attacks.py

reports: setup-test ## profile programs of kinds of which public reports say that profilers show them falsely, and print expected and seen shares (root)
	@log=$$(mktemp); $(BIN)/pytest -n 2 -q -rP -m "not soak" $(REPORTS) >$$log 2>&1; result=$$?; \
	  [ $$result = 0 ] && grep -E '^share: |passed' $$log || cat $$log; rm $$log; exit $$result

test-more: setup-test kafka ## run the tests that `make test` leaves out, and property tests with 1,000 examples from a random SEED
	$(BIN)/pytest -m soak $(filter-out $(CONTAINERS) tests/pipeline/test_attacks.py,$(call files-with,soak))
	@seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); \
	  $(BIN)/pytest -n 2 -m "hypothesis and not soak" --hypothesis-profile soak --hypothesis-seed $$seed; result=$$?; \
	  echo "the seed of the property tests was $$seed: make test-more SEED=$$seed repeats them"; exit $$result

soak: ## run chaos with 100 events, fuzz at full size, containers, attacks and test-more: over an hour
	$(MAKE) chaos EVENTS=100
	$(MAKE) fuzz
	$(MAKE) containers
	$(MAKE) attacks
	$(MAKE) test-more

picture: setup-test ## take the pictures of the page in README and docs; profiles this machine for minutes (root)
	@$(BIN)/python docs/take_pictures_of_compare.py docs/img
	@$(BIN)/python docs/take_picture.py docs/img/page.png

recording: setup ## make the recording that the demo replays on machines that cannot be profiled (root)
	@aside=$$(mktemp -d) && trap 'rm -r $$aside' EXIT \
	  && { (sleep 2; exec $(BIN)/python -m standalone.demo.workload --seconds 12 --socket $$aside/socket) >/dev/null 2>&1 & } \
	  && $(BIN)/icestream record $$aside/all --seconds 16 --frequency 199 --host demo --host-id demo \
	    --activity-socket $$aside/socket \
	  && $(BIN)/python -m standalone.demo.condense_recording $$aside/all standalone/demo/shop.recording

# The Pythons of Debian 12, Ubuntu 24.04 and Debian 13.
DEB_PYTHONS := 3.11 3.12 3.13
DEB_ARCHITECTURES := amd64

wheels: setup-test ## build the wheels and sdists into dist/
	$(BIN)/python deploy/release/wheels.py dist

release-inputs: setup-test ## download what `make deb` puts into packages, into build/inputs/
	@for python in $(DEB_PYTHONS); do for architecture in $(DEB_ARCHITECTURES); do \
	   $(BIN)/python deploy/release/deb.py --fetch $$python $$architecture || exit 1; \
	 done; done

deb: wheels ## build the packages of Debian and Ubuntu into dist/, offline after `make release-inputs`
	@for python in $(DEB_PYTHONS); do for architecture in $(DEB_ARCHITECTURES); do \
	   $(BIN)/python deploy/release/deb.py dist $$python $$architecture || exit 1; \
	 done; done

# Signed with the key in KEY (PEM, ECDSA P-256): openssl and cosign can check it (docs/releases.md).
release: ## build all of a release into dist/ from the last commit, with checksums, and sign it if there is a KEY
	@[ -z "$$(git status --porcelain)" ] || { echo "the work tree differs from the last commit"; exit 1; }
	rm -rf dist
	$(MAKE) --no-print-directory deb image chart
	cp constraints.txt dist/
	$(BIN)/python deploy/release/provenance.py dist >build/provenance.json && mv build/provenance.json dist/
	cd dist && sha256sum * >SHA256SUMS
	@[ -z "$(KEY)" ] || openssl dgst -sha256 -sign "$(KEY)" dist/SHA256SUMS | openssl base64 -A >dist/SHA256SUMS.sig

clean: ## remove what the other targets have made
	rm -rf $(VENV) build icestream/*/build dist *.egg-info icestream/*/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

nodes: ## fetch Node 16 to 26 (600 MB), with which tests of V8 run as well
	npm install --prefix tests/collector/runtimes/v8/fetched --silent --no-fund --no-audit --no-package-lock --ignore-scripts

setup-test:
	@PYTHON=$(PYTHON) deploy/setup.sh test
