# Everything here needs no more than Linux, Python 3.11 or 3.12 (with venv and its shared library), git and make.
# A first run downloads; afterwards no network is needed.

PYTHON ?=
HERE := .venv/bin
PIP := $(HERE)/python -m pip --disable-pip-version-check --no-input install
COMPILE := $(HERE)/uv pip compile --generate-hashes --no-emit-index-url --no-annotate --no-header -q
ALIKE := $(COMPILE) --python-version 3.11.0 --python-platform x86_64-manylinux_2_35
DEVELOP := $(ALIKE) --extra local
GROUP := $(ALIKE) --group

PYTHON_OF_SDK := .venv-sdk/bin/python

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run models test test-deploy check fix bench openapi sdk test-sdk sbom lock clean

help: ## List these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

run: .venv/conch ## Start everything here: Redis, Triton and the gateway, with a key to try it
	@$(HERE)/python -m app.cli up

models: .venv/conch ## Build the model repository from packaged weights
	@$(HERE)/python -m app.cli models build

test: .venv/dev .venv/node .venv/helm/installed models ## Run all tests against a real Redis and a real Triton
	@PYTHONDONTWRITEBYTECODE= $(HERE)/python -m pytest -n 4 --no-loadscope-reorder # or each process compiles all of it anew

test-deploy: .venv/dev .venv-deploy/installed ## Build the images and run compose.yaml, for real, where podman is
	@$(HERE)/python -m pytest -m deploy tests/deploy

check: .venv/dev .venv-deploy/installed .venv/helm/installed ## Look at style, types, layers, images and the chart; edits nothing
	@$(HERE)/ruff check .
	@$(HERE)/ruff format --check .
	@$(HERE)/mypy --strict app tests
	@$(HERE)/lint-imports
	@.venv-deploy/bin/hadolint Dockerfile
	@.venv-deploy/bin/docker-compose --profile cpu --profile gpu config --quiet
	@$(HERE)/python -m tests.document.check
	@.venv-deploy/bin/python -m tests.deploy.manifests

fix: .venv/dev ## Format, and mend what can be mended
	@$(HERE)/ruff check --fix .
	@$(HERE)/ruff format .

bench: .venv/dev models ## Measure the gateway's cost per request
	@$(HERE)/python tests/load/bench.py
	@$(HERE)/python tests/load/limiter.py
	@$(HERE)/python tests/load/limits.py

openapi: .venv/dev ## Write docs/openapi*.json, and the pages of errors, from the code
	@$(HERE)/python -m tests.document.check --write

sdk: .venv/sdk ## Generate clients for Python, TypeScript and Java, into .sdk/
	@$(HERE)/python -m tests.sdk.generate .sdk

test-sdk: .venv/sdk ## Generate, compile and call them; needs Node and a JDK of 17 or more
	@$(HERE)/python -m pytest -m sdk tests/sdk

sbom: .venv/dev ## Write bills of materials (CycloneDX) into .sbom/
	@$(HERE)/python -m tests.security.sbom .sbom

lock: .venv/dev ## Resolve pyproject.toml anew into requirements/
	$(COMPILE) --universal --python-version 3.11 pyproject.toml -o requirements/runtime.txt
	$(DEVELOP) pyproject.toml -o requirements/local.txt
	$(DEVELOP) --extra dev -c requirements/local.txt pyproject.toml -o requirements/dev.txt
	$(GROUP) pyproject.toml:steps -c requirements/local.txt -o requirements/steps.txt
	$(GROUP) pyproject.toml:deploy -o requirements/deploy.txt
	$(GROUP) pyproject.toml:helm --no-deps -o requirements/helm.txt
	$(GROUP) pyproject.toml:sdk -o requirements/sdk.txt

clean: ## Remove all that was made here: .venv, .conch and caches
	@rm -rf .venv .venv-deploy .venv-sdk .sdk .sbom .conch .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
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

.venv/sdk: requirements/sdk.txt .venv/dev
	@$(PYTHON_OF_SDK) -c '' 2>/dev/null || $(HERE)/python -m venv --clear .venv-sdk
	@$(PYTHON_OF_SDK) -m pip --disable-pip-version-check --no-input --quiet install --require-hashes -r $< $(NETWORK)
	@touch $@

# For the tests of clients in JavaScript; they say that they are left out where there is no Node.
.venv/node: tests/clients/package-lock.json .venv/dev
	@if ! command -v npm >/dev/null; then echo 'There is no npm here: the tests of clients in JavaScript are left out.' >&2; exit 0; fi; \
	 cp tests/clients/package.json $< .venv && npm ci --prefix .venv --ignore-scripts --no-audit --no-fund --silent && touch $@ \
	 || { echo 'npm could not install what tests/clients/package-lock.json names: is there a way to its registry?' >&2; exit 1; }

.venv-deploy/installed: requirements/deploy.txt $(HERE)/python
	@$(HERE)/python -m venv .venv-deploy
	@.venv-deploy/bin/python -m pip --disable-pip-version-check --no-input install --no-compile --require-hashes -r $< $(NETWORK)
	@touch $@

.venv/helm/installed: requirements/helm.txt $(HERE)/python
	@$(HERE)/python -m tests.deploy.helm .venv/helm $(NETWORK)
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
