# One environment, .venv, made on first need and again when the pins, the metadata or the folder change.
# Paths are relative throughout, so that the folder may have any name.
.DEFAULT_GOAL := help
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# The first of these that runs and is new enough (a shim that exists but fails is passed over).
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PY := .venv/bin/python
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(PY) -m pip install --quiet -c constraints.txt
# An editable install remembers the folder: a moved or renamed folder installs again.
HERE := $(shell pwd | cksum | cut -d' ' -f1)
SETUP := .venv/.setup-$(HERE)
LINT := .venv/.lint-$(HERE)

# What the first command would otherwise wait for; where numba is missing, nothing is compiled and all works.
KERNELS := $(PY) -c 'import sys; from headcount.kernels.step.numba_cache import compile_kernels as c; c(sys.argv[1])'

.PHONY: help setup demo test test-slow lint format bench bench-check stale clean

help:
	@echo 'make demo         the two-minute tour: how many heads does a small task need?'
	@echo 'make test         the tests (ARGS="-k name" chooses some)'
	@echo 'make test-slow    the full counts; rewrites benchmarks/results/'
	@echo 'make lint         ruff and pyright'
	@echo 'make bench        timings, beside the peer in one run'
	@echo 'make bench-check  fails where training has slowed beside the peer'
	@echo 'make stale        figures whose code has changed since they were measured'
	@echo 'make setup        the environment only'

$(SETUP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo 'headcount: needs Python 3.11 or newer; none was found on PATH (set PYTHON=/path/to/python)' >&2; exit 2; }
	@$(PY) -m pip --version >/dev/null 2>&1 || { echo 'making .venv with $(PYTHON)' >&2; $(PYTHON) -m venv --clear .venv; }
	@echo 'installing headcount and what it needs (once; a minute or two)' >&2
	@$(PIP) -e '.[test]'
	@echo 'compiling the kernels (once; a minute)' >&2
	@for t in float32 float64; do $(KERNELS) $$t 2>/dev/null & done; wait
	@touch $@

$(LINT): $(SETUP)
	@$(PIP) -e '.[test,lint]'
	@touch $@

setup: $(SETUP)

demo: $(SETUP)
	@$(PY) -m headcount demo $(ARGS)

# Bytecode is kept, wherever the environment says otherwise: workers and child processes import the same files.
test: $(SETUP)
	@PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(PY) -m pytest -m 'not slow' -n 2 --dist loadfile $(ARGS)

test-slow: $(SETUP)
	@$(PY) -m pytest -m slow $(ARGS)

lint: $(LINT)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m pyright

format: $(LINT)
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: $(SETUP)
	@$(PY) -m benchmarks.speed --out benchmarks/results/bench-cpu.json

bench-check: $(SETUP)
	@$(PY) -m benchmarks.check

stale: $(SETUP)
	@$(PY) -m benchmarks.stale $(ARGS)

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis headcount-demo
