# Two commands are all a newcomer needs: `make demo` and `make test`.
# Both build .venv from requirements.lock when it is missing or older than the lock. No environment
# is replaced or removed that this file did not make: the others lack its marker.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One BLAS thread: several of them fight XLA for the cores.
export OPENBLAS_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast check docs dist format lock clean reproduce needs-world

# An environment of the time before the marker has only its last file, .installed.
REMOVE_ENVIRONMENT = if [ -n "$$(ls -A "$(VENV)" 2>/dev/null)" ] && \
	  [ ! -e "$(VENV)/.made-by-make" ] && [ ! -e "$(VENV)/.installed" ]; then \
	  echo "'$(VENV)' is not an environment that make made, so it stays as it is: give another with VENV=..." >&2; \
	  exit 2; fi; rm -rf "$(VENV)"

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "Quorum needs Python 3.11, 3.12 or 3.13, and '$(PYTHON)' is another version: run 'make PYTHON=/path/to/python3.12 ...'." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "'$(PYTHON)' has no venv module: install it (Debian and Ubuntu: apt-get install python3-venv) and run make again." >&2; exit 2; }
	@$(REMOVE_ENVIRONMENT)
	@echo "Installing Quorum into $(VENV) (about a minute, once)..."
	@mkdir -p "$(VENV)" && touch "$(VENV)/.made-by-make"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(VENV)/.installed ## run the main job on its built-in default and draw what happened
	@$(BIN)/quorum demo

test: check ## everything CI runs: the checks, then the tests
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile

test-fast: $(VENV)/.installed ## the tests that take little time, for while you work: a minute or so
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not slow"

check: $(VENV)/.installed ## lint, format, types, who may import whom, and the docs
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory docs

# Not --quiet: it would count no warnings.
docs: $(VENV)/.installed ## build the documentation site into site/, without a single warning
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

dist: $(VENV)/.installed ## build the wheel and the source distribution into dist/
	@rm -rf dist
	@$(BIN)/python -m hatchling build

reproduce: needs-world $(VENV)/.installed ## run the paper's evaluation in one world: make reproduce WORLD=CartPole
	@$(BIN)/python -m reproduction $(WORLD) $(ARGS)

needs-world:
	@test -n "$(WORLD)" || \
	  { echo "Which world? Run 'make reproduce WORLD=CartPole', or Acrobot, LunarLander or HIV." >&2; exit 2; }

format: $(VENV)/.installed ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: ## write requirements.lock anew from pyproject.toml (needs uv)
	@uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	  --no-emit-index-url --no-emit-find-links --generate-hashes --no-header --upgrade -o requirements.lock

clean: ## remove the environment and what the tools cached
	@$(REMOVE_ENVIRONMENT)
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo dist site
