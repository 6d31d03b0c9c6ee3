# Every target builds .venv from the project's own files first; nothing else to install by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# One BLAS thread a process: the matrices are small, and threads of several processes get in each other's way.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint bench profile audit clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/streampca demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/streampca bench

# Where the time of a row goes, at d = FEATURES: by function, and with FAST=1 by the compiled kernels.
FEATURES ?= 20
FAST ?= 0
profile: $(STAMP)
	$(BIN)/python -m streampca.bench.profile $(FEATURES) $(FAST)

audit: $(STAMP)
	$(BIN)/streampca audit --all

clean:
	rm -rf $(VENV) out build dist
