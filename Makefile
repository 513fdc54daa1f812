# Everything a newcomer needs. Each target sets up what it uses; only Python >= 3.11 and make are assumed.
PYTHON ?= python3
# `make test VERSIONS=newest` runs with the newest versions of everything, in an environment of its own. Otherwise those of
# constraints.txt are used, which `make lock` writes.
VERSIONS ?= locked
ifeq ($(VERSIONS),newest)
VENV ?= .venv-newest
PINNED :=
else
VENV ?= .venv
PINNED := --constraint constraints.txt
endif
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Test files that run at the same time: more than there are cores, since most wait for another program.
# JOBS=0 runs one after the other and shows what they print.
JOBS ?= $(shell $(PYTHON) -c 'import os; print(max(2, (os.cpu_count() or 1) * 3 // 2))')
# Real programs and a real browser on a busy machine: what only ran out of time is tried once more, and the report says so.
LATE := --reruns 1 --only-rerun TimeoutError --only-rerun 'Locator expected'
DEV := $(VENV)/.ready-dev
BENCH := $(VENV)/.ready-bench
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: help demo test test-fast agents browser shells test-shell-long agents-latest check format docs pictures bench bench-agents bench-workflows bench-hostile bench-web bench-start clean lock

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## a desk with scripted agents that ask; answer them from another terminal
	@$(BIN)/handraise demo

test: $(DEV) agents browser shells ## every test
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(LATE) $(ARGS)

test-fast: $(DEV) ## without real agents, browser, shells, PostgreSQL and what is marked slow
	@$(BIN)/python -m pytest -q --fast -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

agents: $(DEV) ## fetch the real agents that the tests run; HANDRAISE_WITHOUT_AGENTS=1 goes without them
	@$(BIN)/python tests/live/programs.py --quiet

browser: $(DEV) ## install the browser that the tests run; HANDRAISE_WITHOUT_BROWSER=1 goes without it
	@PYTHONPATH=. $(BIN)/python tests/browser/install.py --quiet

shells: $(DEV) ## install the shells that the tests run; HANDRAISE_WITHOUT_SHELLS=1 goes without them
	@$(BIN)/python tests/shells/install.py --quiet

test-shell-long: $(DEV) shells ## hold 200,000 command lines against real shells, from a seed that is printed
	@seed=$${HANDRAISE_SHELL_SEED:-$$($(PYTHON) -c 'import random; print(random.randrange(10**9))')}; echo "seed $$seed"; \
	 HANDRAISE_SHELL_SEED=$$seed HANDRAISE_SHELL_LINES=200000 $(BIN)/python -m pytest -n 2 --dist loadfile tests/shells $(ARGS)

agents-latest: $(DEV) ## run their tests with the newest version of each
	@$(BIN)/python tests/live/programs.py --latest
	@HANDRAISE_TEST_AGENTS=latest $(BIN)/python -m pytest tests/live $(ARGS)

check: $(DEV) ## format, lint, types, reference pages
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python docs/generate.py --check
	@$(BIN)/python docs/generate_types.py --check
	@PYTHONPATH=. $(BIN)/python tools/check_web.py

format: $(DEV) ## let ruff write the formatting
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(READY) ## write docs/reference and the web app's types from the code
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/generate_types.py

pictures: $(DEV) browser ## take the pictures of the documentation anew
	@HANDRAISE_WRITE_PICTURES=1 $(BIN)/python -m pytest -q tests/browser/test_pictures.py

bench: $(BENCH) ## measure against sandbox-agent and the bare store; writes docs/performance.md
	@$(BIN)/python bench/run.py $(ARGS)

bench-agents: $(DEV) agents ## measure what the desk adds to a real agent's question; writes docs/latency.md
	@PYTHONPATH=. $(BIN)/python bench/agents.py $(ARGS)

bench-workflows: $(BENCH) ## measure steps, runs that wait and taking over; writes docs/workflow-performance.md
	@$(BIN)/python bench/workflows.py $(ARGS)

bench-hostile: $(BENCH) ## measure what one hostile request costs the desk and everybody else
	@$(BIN)/python bench/hostile.py $(ARGS)

bench-web: $(DEV) browser ## measure the web app in a browser; writes docs/web-performance.md
	@PYTHONPATH=. $(BIN)/python bench/web.py $(ARGS)

bench-start: $(READY) ## measure how much CPU commands take to start, beside an empty Python
	@$(BIN)/python bench/start_up.py $(ARGS)

lock: ## write constraints.txt anew, from the newest versions
	@rm -rf .venv-newest
	@$(MAKE) VERSIONS=newest .venv-newest/.ready-dev .venv-newest/.ready-bench
	@.venv-newest/bin/python tools/lock.py

clean: ## remove the environment and caches
	rm -rf $(VENV) .venv-newest .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "handraise needs Python 3.11 or newer; this is %s. Try: make PYTHON=python3.12" % sys.version.split()[0])'
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(READY): $(BIN)/python pyproject.toml constraints.txt
	@echo "installing handraise into $(VENV) (about half a minute the first time)"
	@$(PIP) install $(PINNED) -e .
	@touch $@

$(DEV): $(READY) pyproject.toml
	@echo "installing the test tools"
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install $(PINNED) --group dev
	@touch $@

$(BENCH): $(READY) pyproject.toml
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install $(PINNED) --group bench
	@touch $@
