# `make demo` and `make test` do all the set-up that they need.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest
# Tests that sync wait for the disk. Where memory has room, `make test-unit` keeps their files there; `make test-long` uses the disk.
MEMORY := $(shell test "$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }')" -gt 1000000 2>/dev/null && echo /dev/shm)

# Each test process would otherwise compile every test and module again: 4 s.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install demo test test-unit test-spark test-e2e test-long test-crash check format bench docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml hatch_build.py
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Penstock needs Python 3.11 or newer; name one with: make PYTHON=python3.11 …")'
	@$(PYTHON) kernel/build.py --check
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python kernel/build.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	-@$(BIN)/penstock prepare
	@touch $@

install: $(READY) ## set up .venv with everything in it, and build the kernel
	@$(BIN)/python kernel/build.py

demo: install ## run the demonstration
	@$(BIN)/penstock demo

test: check test-unit test-spark test-e2e ## check, then the unit, Spark and end-to-end tests

test-unit: install ## the tests that need no JVM
	$(if $(MEMORY),TMPDIR=$(MEMORY)) $(PYTEST) -n 4 --dist worksteal -o tmp_path_retention_policy=failed tests/unit

test-spark: install ## the tests that share one Spark session
	$(PYTEST) --durations=25 tests/spark

test-e2e: install ## the tests that start, and kill, whole processes
	$(PYTEST) -n 2 --dist worksteal tests/e2e

test-long: install ## the tests that take many minutes; not part of `make test`
	TEST_EFFORT=8 $(PYTEST) -n 2 --dist worksteal tests/unit
	TEST_EFFORT=2 $(PYTEST) tests/spark
	TEST_EFFORT=2 $(PYTEST) tests/e2e
	$(PYTEST) tests/long

test-crash: install ## kill a database 1,000 times, with its JVM and without; CRASH="--kills 50 --seed 7" passes arguments
	$(BIN)/python -m tests.crash.storage $(CRASH)
	$(BIN)/python -m tests.crash.harness $(CRASH)

check: install ## linter, formatter, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## rewrite the code as the linter and the formatter want it
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: install ## run the benchmarks; BENCH="…" passes arguments
	-@$(BIN)/penstock prepare
	$(BIN)/python -m benchmarks $(BENCH)

docs: install ## regenerate the reference pages and the table of the benchmarks
	$(BIN)/python docs/generate.py
	$(BIN)/python -m benchmarks.figures

lock: $(READY) ## choose the newest allowed version of every dependency
	$(BIN)/uv pip compile --quiet --upgrade --universal --no-header --no-annotate --no-emit-index-url \
		--extra dev --output-file requirements.lock pyproject.toml

clean: ## remove all that was made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
	rm -f src/penstock/spark/penstock-kernel.jar
	find src tests docs kernel -name __pycache__ -type d -prune -exec rm -rf {} +
