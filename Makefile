# Every target sets itself up in .venv from nothing; a second call starts at once.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# One thread per process is fastest for small arrays, and on shared cores.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

PAPER_RUN := examples/data/paper_100k_run.csv

.DEFAULT_GOAL := help
.PHONY: help quickstart headline test test-all mutation check figures clean

help: ## Show this list
	@grep -hE '^[a-z-]+%?:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/; s/%/NAME/' | expand -t 14

quickstart: .venv/.train ## Train the whole recipe on this machine's CPU and write runs/quickstart/report.html (minutes)
	$(BIN)/scalerl train scalerl --out runs/quickstart

headline: .venv/.light ## Fit the paper's 100,000 GPU-hour run on its first half and write reports/headline.html
	@mkdir -p reports
	$(BIN)/scalerl fit $(PAPER_RUN) --r0 0.40 --window 1.5k:50k --at 100k --report reports/headline.html

test: .venv/.dev ## Run the tests (minutes)
	$(BIN)/python -m pytest -q -n 2

test-all: .venv/.dev ## Run every test, the slow ones too
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -q -n 2 -m ""

mutation: .venv/.dev ## Change the objective's lines one by one and see whether a test fails, nightly (5 minutes)
	$(BIN)/python .ci/mutation.py

check: .venv/.dev ## Lint, formatting, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

figures: .venv/.dev ## Draw the figures of the README and of docs/losses again, and write the tables of its pages
	$(BIN)/python docs/figures/make.py
	$(BIN)/python docs/figures/losses.py

bench-%: .venv/.dev ## Run benchmarks/NAME.py
	$(BIN)/python benchmarks/$*.py

clean: ## Remove the environment and what tools left behind
	rm -rf .venv .import_linter_cache .pytest_cache .mypy_cache .ruff_cache .hypothesis reports

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: call make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.light: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	@touch $@

.venv/.train: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[train]'
	@touch .venv/.light $@

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev,live,train,trackers]'
	@touch .venv/.light .venv/.train $@
