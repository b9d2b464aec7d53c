# `make help` lists the targets. PYTHON=/path/to/python picks the interpreter, ARGS="..." goes to pytest or to the bench.
.DEFAULT_GOAL := help
.PHONY: help demo example test check services services-down bench long lock venv clean
VENV := .venv
PY := $(VENV)/bin/python

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "make %-14s %s\n", $$1, $$2 }'

demo: $(VENV)/.run  ## three ways to tell of 1,000 orders, processes killed while they work; needs no server
	@$(VENV)/bin/pillarbox demo

test: $(VENV)/.dev  ## every test; starts the real servers it can, and stops those that it started
	@$(PY) -m services run -- $(PY) -m tests $(ARGS)

example: $(VENV)/.dev  ## orders and stock: two services under load and kill -9, and the balance
	@$(PY) -m services run mysql postgres rabbitmq -- $(PY) -m examples.orders $(ARGS)

check: $(VENV)/.dev  ## lint, format, types and layers, in seconds; needs no server
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

services: $(VENV)/.dev  ## start the real databases and brokers, and leave them up
	@$(PY) -m services up

services-down: $(VENV)/.dev  ## stop them; their data stays
	@$(PY) -m services down

bench: $(VENV)/.dev  ## the product against a raw loop, on the same servers in the same run
	@$(PY) -m services run -- $(PY) -m bench $(ARGS)

long: $(VENV)/.dev  ## the tests that take minutes; long measurements: make bench ARGS="record --long steady"
	@$(PY) -m services run -- $(PY) -m pytest --durations=10 -m long $(ARGS)

venv: $(VENV)/.dev  ## .venv with every package of requirements/dev.txt

lock: $(VENV)/.dev  ## choose new versions: requirements/*.in to requirements/*.txt
	@requirements/lock $(PY)

clean:  ## stop the servers; delete their data, .venv and caches (downloads stay in their cache)
	@if [ -x $(PY) ]; then $(PY) -m services wipe; fi
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Two stamps: the demo needs the packages of run.txt alone, and `make test` adds those of dev.txt to the same folder.
# A stamp that is older than its lock means packages of another version: then the folder is made anew.
$(VENV)/.run: requirements/run.txt pyproject.toml requirements/venv
	@PYTHON="$(PYTHON)" requirements/venv $(VENV) run

$(VENV)/.dev: requirements/dev.txt pyproject.toml requirements/venv
	@PYTHON="$(PYTHON)" requirements/venv $(VENV) dev
