# `make help` lists what there is. Everything happens in .venv; nothing is installed elsewhere.
VENV     ?= .venv
PYTHON   ?= python3
PIP_ARGS ?=
# One more than there are processors: tests with processes of their own wait a good deal.
WORKERS  ?= $(shell $(PYTHON) -c "import os; print(min(4, (os.cpu_count() or 1) + 1))")
BIN      := $(VENV)/bin
export NO_MKDOCS_2_WARNING = 1
# Else every process of every test, and every worker, compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE
PIP      := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS)

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast coverage containers docs reference dist release lint format bench drill fuzz states proto clean

help: ## lists the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: $(VENV)/.installed ## a server and four parties train VIMADMM on handwritten digits, here
	$(BIN)/colonnade up

test: $(VENV)/.developed ## the whole test suite
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-fast: $(VENV)/.developed ## the tests without processes, browsers and long runs: a minute and a half
	$(BIN)/python -m pytest -m fast -n $(WORKERS) --dist worksteal

coverage: $(VENV)/.developed ## all tests: the lines and refusals that they reach; AGAINST=FILE fails if some of that result are lost
	$(BIN)/python -m tests.coverage --out build/coverage.json $(if $(AGAINST),--against $(AGAINST)) -n $(WORKERS) --dist worksteal

containers: $(VENV)/.developed ## builds the image, and tests docker-compose.yml with real containers
	.ci/engine
	$(BIN)/python -m pytest -m containers -n 2 --dist worksteal tests/deploy

docs: $(VENV)/.documented ## the site, into build/site; a warning fails
	$(BIN)/mkdocs build

reference: $(VENV)/.installed ## generates the tables of docs/configuration.md, and docs/openapi.json
	$(BIN)/python -m colonnade.reports.reference_page

dist: $(VENV)/.developed ## wheel and sdist of colonnade and of colonnade-lab, into dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m build --no-isolation --outdir dist lab

release: $(VENV)/.developed ## wheel, sdist, SBOM and checksums, checked, into dist; not of a .dev version (ALLOW_DEV=1)
	$(BIN)/python deploy/release.py dist

lint: $(VENV)/.developed ## style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.developed ## lays the code out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.developed ## every benchmark, each against a floor in the same run
	$(BIN)/python -m benchmarks

drill: $(VENV)/.developed ## kills members of 50 federations at random moments, and looks at what is left
	$(BIN)/python -m benchmarks.drill

fuzz: $(VENV)/.developed ## mutated bytes for every reader: MINUTES=5, or COUNT= of each, TARGETS="frames config", SEED=
	$(BIN)/python -m tests.fuzz $(TARGETS) $(if $(COUNT),--count $(COUNT),--minutes $(or $(MINUTES),5)) $(if $(SEED),--seed $(SEED))

states: $(VENV)/.developed ## every pair of message kinds in every state of a session, 30 minutes; or SETTINGS="split coded", EVERY=20
	$(BIN)/python -m tests.states $(SETTINGS) $(if $(EVERY),--every $(EVERY))

proto: $(VENV)/.developed ## generates proto/ from messages, and common/wire/_generated from proto/
	$(BIN)/python proto/generate.py

clean: ## removes the environment and everything that was made
	rm -rf $(VENV) build dist *.egg-info lab/build lab/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml lab/pyproject.toml constraints.txt
	@echo "installing into $(VENV), which takes a few minutes the first time"
	$(PIP) -e .
	@touch $@

$(VENV)/.developed: $(VENV)/.installed
	$(PIP) -e '.[dev]' -e lab
	@touch $@

$(VENV)/.documented: $(VENV)/.installed
	@$(PIP) -e '.[docs]' || { echo "the site needs what the extra \`docs\` of pyproject.toml names, and pip cannot install it"; exit 1; }
	@touch $@
