# The same commands for a person and for CI. `make help` lists them.
#
#   PYTHON       the interpreter that makes .venv (3.11 or later)            make demo PYTHON=python3.12
#   TORCH_INDEX  where pip may also look for torch. On Linux the wheel of PyPI brings gigabytes of CUDA, so the default
#                is the index of CPU builds where it answers within 3 seconds, else none. For CUDA: make dev TORCH_INDEX=
#   ARGS         passed on to pytest                                         make test ARGS="-k smoke -x"
#   BUNDLE       the pair that `make bench` measures, if not the bundled one;  BENCH  other options of scripts/bench_*.py

PYTHON ?= python3
CPU_TORCH := https://download.pytorch.org/whl/cpu
TORCH_INDEX ?= $(shell curl -fsIL -m 3 -o /dev/null $(CPU_TORCH)/torch/ 2>/dev/null && echo $(CPU_TORCH))
ARGS ?=
BUNDLE ?=
BENCH ?=

BIN := .venv/bin
PIP_INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt
SOURCES := $(shell find specmt -type f -not -name '*.pyc' -not -name '*.so' 2>/dev/null)
COMPILED := setup.py $(wildcard specmt/native/*.cc specmt/native/*.h tests/native/*.cc)

# A development install runs the demo as well: with one there, the demo does not install over it.
RUNNABLE := $(if $(wildcard .venv/.dev),.venv/.dev,.venv/.demo)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo dev test check format bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUNNABLE)  ## install the package into .venv and translate data/sample.de
	@$(BIN)/specmt translate < data/sample.de

dev: .venv/.dev  ## install the package for development, with fairseq, into .venv

test: .venv/.dev  ## run the tests
	$(BIN)/python -m pytest $(ARGS)

check: .venv/.dev  ## ruff, the format, strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror specmt/native/*.cc specmt/native/*.h tests/native/*.cc
	$(BIN)/mypy

format: .venv/.dev  ## put imports and layout right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i specmt/native/*.cc specmt/native/*.h tests/native/*.cc

bench: .venv/.dev  ## measure what has not been measured, and write docs/benchmarks.md, or runs/bench-… for a BUNDLE (some hours)
	$(BIN)/python -c 'import ctranslate2' 2> /dev/null || $(PIP_INSTALL) --editable '.[bench]'
	@set -e; for script in bench_limit bench_passes bench_start bench_systems write_benchmarks; do \
	  $(BIN)/python scripts/$$script.py $(addprefix --bundle ,$(BUNDLE)) $(BENCH); done

clean:  ## remove .venv, build products and caches; data/corpora and runs stay
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find specmt scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "make: $(PYTHON) cannot make a virtual environment (on Debian: apt install python3-venv)" >&2; exit 1; }

.venv/.demo: $(SOURCES) setup.py setup.cfg pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing specmt into .venv (a minute, the first time)" >&2
	@rm -rf build .venv/.dev && $(PIP_INSTALL) .
	@touch $@

# fairseq without its dependencies: setup.cfg has current ones. Where there is no C++ compiler, without extensions.
.venv/.dev: $(COMPILED) setup.cfg pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing specmt, torch and fairseq into .venv (minutes, the first time)" >&2
	@$(PIP_INSTALL) $(addprefix --extra-index-url ,$(TORCH_INDEX)) --editable '.[train,dev]'
	@$(PIP_INSTALL) --no-deps fairseq==0.12.2 2> .venv/fairseq.log || { \
	  echo "fairseq does not compile (.venv/fairseq.log): installing it without extensions" >&2; \
	  READTHEDOCS=1 $(PIP_INSTALL) --no-deps --no-cache-dir fairseq==0.12.2; }
	@$(BIN)/python -m compileall -q specmt
	@touch $@
