# Everything here needs no more than Linux, Python 3.11 or 3.12 (with venv and its shared library), git and make.
# A first run downloads; afterwards no network is needed.

PYTHON ?=
HERE := .venv/bin
PIP := $(HERE)/python -m pip --disable-pip-version-check --no-input install
COMPILE := $(HERE)/uv pip compile --generate-hashes --no-emit-index-url --no-annotate --no-header -q
DEVELOP := $(COMPILE) --python-version 3.11.0 --python-platform x86_64-manylinux_2_35 --extra local

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run models test check fix bench lock clean

help: ## List these commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 9

run: .venv/conch ## Start everything here: Redis, Triton and the gateway, with a key to try it
	@$(HERE)/python -m app.cli up

models: .venv/conch ## Build the model repository from packaged weights
	@$(HERE)/python -m app.cli models build

test: .venv/dev models ## Run all tests against a real Redis and a real Triton
	@$(HERE)/python -m pytest -n 2 --dist loadfile

check: .venv/dev ## Look at style, types and layers; edits nothing
	@$(HERE)/ruff check .
	@$(HERE)/ruff format --check .
	@$(HERE)/mypy --strict app tests
	@$(HERE)/lint-imports

fix: .venv/dev ## Format, and mend what can be mended
	@$(HERE)/ruff check --fix .
	@$(HERE)/ruff format .

bench: .venv/dev models ## Measure the gateway's cost per request
	@$(HERE)/python tests/load/bench.py

lock: .venv/dev ## Resolve pyproject.toml anew into requirements/
	$(COMPILE) --universal --python-version 3.11 pyproject.toml -o requirements/runtime.txt
	$(DEVELOP) pyproject.toml -o requirements/local.txt
	$(DEVELOP) --extra dev -c requirements/local.txt pyproject.toml -o requirements/dev.txt

clean: ## Remove all that was made here: .venv, .conch and caches
	@rm -rf .venv .conch .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	@find app tests model_repository -name __pycache__ -type d -prune -exec rm -rf {} +

# What is installed, each with a stamp that is older than its lock when there is something to do.

NETWORK := || { echo 'pip could not install the packages. Where it says "No matching distribution" or "Connection", there is no way to the\
 package index:\ncheck the network, or the proxy and index that pip is told of (pip config list). Where it says "HASHES", the file is not the\
 one that was locked.' >&2; exit 1; }

.venv/local: requirements/local.txt $(HERE)/python
	@$(PIP) --require-hashes -r $< $(NETWORK)
	@touch $@

.venv/dev: requirements/dev.txt .venv/conch
	@$(PIP) --require-hashes -r $< $(NETWORK)
	@touch $@

.venv/conch: pyproject.toml .venv/local
	@$(PIP) --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# The first of these that really runs, is of the right version and has all that it takes. Being there proves nothing: a pyenv shim
# stands in PATH for interpreters that are not chosen.
CANDIDATES := $(or $(PYTHON),python3.11 python3.12 python3 $(wildcard $(HOME)/.pyenv/versions/3.1[12].*/bin/python))

$(HERE)/python:
	@said=; for python in $(CANDIDATES); do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null || continue; \
	  if trouble=$$("$$python" -m app.local.machine 2>&1); then exec "$$python" -m venv --clear .venv; fi; \
	  said="$$said$$python: $$trouble\n"; \
	done; \
	if [ -n "$$said" ]; then printf '%b' "$$said"; else \
	  echo "No Python 3.11 or 3.12 runs here (tried: $(CANDIDATES))."; \
	  echo "Debian 12: apt install python3.11 python3.11-venv libpython3.11. Ubuntu 24.04: the same with 3.12."; \
	  echo "Fedora: dnf install python3.12 python3.12-libs. Or name one: make run PYTHON=/path/to/python3.12"; \
	fi >&2; exit 3
