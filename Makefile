# Two commands do everything on a fresh machine with Python, make and a C++ compiler: `make demo`, `make test`.
#
#   make demo       environment, build, install, fetch the default model, show it
#   make test       environment, build, install, fetch the models, all tests
#   make lint       ruff            make types     mypy --strict
#   make bench      speed of every built-in drafter on the built-in workloads
#   make sanitize   the native module's tests under address and undefined-behaviour sanitizers
#   make clean      remove everything made here
#
#   PYTHON=…            the interpreter to build the environment from
#   TESTS=…             what `make test` hands to pytest (default: tests)
#   ACCEPT_TERMS=1      you accept Google's Gemma terms: gemma3-270m is fetched and its tests run

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
TESTS ?= tests
ACCEPT_TERMS ?=
MODEL := smollm2-135m
SOURCES := pyproject.toml $(wildcard CMakeLists.txt) $(shell find src/paceline/native -name '*.[ch]pp' -o -name '*.inl')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint types bench sanitize clean install models

help:
	@sed -n '1,12s/^# \{0,1\}//p' Makefile

demo: $(VENV)/.core
	$(BIN)/paceline pull $(MODEL)
	$(BIN)/paceline demo --model $(MODEL)

test: $(VENV)/.core $(VENV)/.test $(VENV)/.reference models
	$(BIN)/python -m pytest $(TESTS)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.core $(VENV)/.lint $(VENV)/.test $(VENV)/.reference
	$(BIN)/mypy

bench: $(VENV)/.core
	$(BIN)/paceline pull $(MODEL)
	$(BIN)/paceline bench --model $(MODEL) --drafter ngram,suffix,recycle,auto --limit 4 --json out/bench.json

sanitize: $(VENV)/.made
	scripts/sanitize.sh

install: $(VENV)/.core

models: $(VENV)/.core
	$(BIN)/paceline pull $(MODEL)
ifneq ($(ACCEPT_TERMS),)
	$(BIN)/paceline pull gemma3-270m --accept-terms
else
	@echo "gemma3-270m is left out: with ACCEPT_TERMS=1 its tests run too (Gemma's terms apply)."
endif

clean:
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp per step, so that a second call does only what changed. The environment is made with the first
# suitable interpreter; a recent pip is needed for dependency groups.
$(VENV)/.made:
	@python=$$(scripts/check_machine.sh "$(PYTHON)") && echo "environment: $$python -> $(VENV)" \
	    && "$$python" -m venv $(VENV)
	$(PIP) install --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.core: $(VENV)/.made $(SOURCES)
	@scripts/check_machine.sh "$(BIN)/python" >/dev/null
	@echo "installing Paceline: its native part is compiled, which takes a minute or two"
	$(PIP) install --editable .
	@touch $@

$(VENV)/.test $(VENV)/.lint $(VENV)/.reference: $(VENV)/.%: $(VENV)/.made pyproject.toml
	$(PIP) install --group $*
	@touch $@
