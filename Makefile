# `make demo` and `make test` need only Python 3.11+ and make: they set up .venv on their first run.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

export PYTHONHASHSEED ?= 0

.DEFAULT_GOAL := help
.PHONY: help install demo test quick storm lint check docs package annotators clean

help: ## show this help
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

install: $(READY) ## set up .venv with everything, extras included

# Re-runs only when what is to be installed changes. uv installs in half a minute what takes pip several.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "manylabel needs Python 3.11 or newer, this is %d.%d; try: make PYTHON=python3.11" % sys.version_info[:2])'
	@echo "Setting up $(VENV): about 7 GB, a minute with a fast connection. This is done once."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv || echo "uv is not available; falling back to pip"
	@if $(BIN)/python -m uv --version >/dev/null 2>&1; then \
	  VIRTUAL_ENV=$(VENV) $(BIN)/python -m uv pip install --quiet --compile-bytecode --constraint constraints.txt --editable '.[dev]'; \
	else \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'; \
	fi
	@touch $(READY)

demo: $(READY) ## tag photos, train on generated images, and write a report
	@$(BIN)/python examples/demo.py

# One thread each: two processes with two threads each wait for one another on two cores.
test: check ## static checks, then all tests and doctests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

# Bytecode of the tests is cached: rewriting their assertions takes six seconds in each process.
quick: $(READY) ## the fast tests, in under a minute
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'not slow and not storm' tests

storm: $(READY) ## long fault tests: hostile requests, kills, full disks
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m storm --timeout 1800 tests/faults

lint: $(READY) ## lint, format, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## lint, then build the docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir .cache/site

docs: $(READY) ## serve the docs at http://127.0.0.1:8000
	$(BIN)/mkdocs serve

# Each environment takes 6 GB, so they come one after the other.
package: $(READY) ## build sdist and wheel, try the wheel in empty environments, and the steps of the Dockerfile
	@rm -rf dist .cache/try && mkdir -p .cache/try
	$(BIN)/python -m uv build --quiet --out-dir dist
	@for resolution in lowest-direct highest; do \
	  echo "The wheel with the $$resolution versions of what it needs"; \
	  rm -rf .cache/try/* && $(BIN)/python -m uv venv --quiet --python $(BIN)/python .cache/try/venv && \
	  $(BIN)/python -m uv pip install --quiet --python .cache/try/venv/bin/python --resolution $$resolution \
	    --requirements pyproject.toml --extra train && \
	  $(BIN)/python -m uv pip install --quiet --python .cache/try/venv/bin/python --no-deps dist/*.whl && \
	  (cd .cache/try && MANYLABEL_CACHE=cache venv/bin/python $(CURDIR)/tools/smoke_test.py) || exit 1; \
	done
	@echo "The steps of the Dockerfile" && rm -rf .cache/try/* && $(BIN)/manylabel export --out .cache/try/model.onnx && \
	  $(BIN)/python tools/try_dockerfile.py .cache/try/model.onnx; code=$$?; rm -rf .cache/try; exit $$code

# Their packages need other versions than ours; about 1 GB each, so not in CI.
annotators: $(READY) ## the loop with the real Label Studio; files read by FiftyOne and Datumaro (CVAT)
	@for tool in 'label_studio label-studio' 'annotation_files fiftyone datumaro'; do \
	  set -- $$tool; rm -rf .cache/try && $(BIN)/python -m uv venv --quiet --python $(BIN)/python .cache/try && \
	  $(BIN)/python -m uv pip install --quiet --python .cache/try/bin/python $$2 $$3 && \
	  .cache/try/bin/python tools/try_$$1.py $(CURDIR)/$(BIN)/python || exit 1; \
	done; rm -rf .cache/try

clean: ## remove the environment and what was built
	rm -rf $(VENV) .cache dist
