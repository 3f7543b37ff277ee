# Everything sets itself up: `make wheel` and `make test` need python3, a C++ compiler and the package index only.
ARCH ?= sm_90
PROFILE ?= default
OUTPUT ?= dist
PYTHON ?= python3
VENV ?= .venv
# The small CPU build where the index has one; a cluster image keeps its own torch (TORCH=).
TORCH ?= torch==2.13.0
BIN := $(VENV)/bin

.PHONY: help wheel runtime test test-fast test-gpu bench lint clean

help:
	@echo "make wheel [ARCH=sm_90] [PROFILE=default] [OUTPUT=dist]   kernels for an architecture"
	@echo "make runtime [OUTPUT=dist]                                the loader: x86_64, aarch64 and pure Python"
	@echo "make test                                                 every test that needs no GPU"
	@echo "make test-fast                                            the ones without nvcc"
	@echo "make test-gpu                                             on a machine with a GPU, after make wheel PROFILE=proof"
	@echo "make bench                                                side by side with torch (and the JIT peer if installed)"
	@echo "make lint                                                 ruff and mypy"

$(VENV)/.build: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[build,nvcc]'
	@touch $@

$(VENV)/.dev: $(VENV)/.build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[build,nvcc,dev]'
	@touch $@

wheel: $(VENV)/.build
	$(BIN)/humming-build --arch '$(ARCH)' --profile '$(PROFILE)' -o '$(OUTPUT)'

runtime: $(VENV)/.dev
	HUMMING_NATIVE=x86_64 $(BIN)/python -m hatchling build -t wheel -d '$(OUTPUT)'
	HUMMING_NATIVE=aarch64 $(BIN)/python -m hatchling build -t wheel -d '$(OUTPUT)'
	HUMMING_NATIVE=none $(BIN)/python -m hatchling build -t wheel -d '$(OUTPUT)'

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m 'not gpu' -n auto --dist loadgroup

test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -m 'not gpu and not compile' -n auto --dist loadgroup

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest tests/gpu -m gpu

bench: $(VENV)/.dev
	$(BIN)/python -m tests.bench.side_by_side -o tests/bench/results/w4a16_g128

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf build dist
