# Everything that is done with this repository. Needs Python >= 3.11 with pip and venv, and make.
#
#   make run                    install into .venv and show the program at work on a fixture
#   make test                   format, lint, types, layers and all tests, from nothing
#   make test PYTHON=/path      the same with another interpreter (use `make clean` when changing it)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SAMPLE := fixtures/ome-tiff/pyramid/cells.ome.tiff
OUT := out
PYTEST_ARGS ?=
# Processes that run tests; many of these wait for servers or for programs that they start.
PYTEST_PROCESSES ?= 2
PYTEST = HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest -n $(PYTEST_PROCESSES) --dist worksteal

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install run test check format lint types layers tests corpus docs man pictures dist-check fixtures coverage clean

help:
	@sed -n 's/^#//p' Makefile | head -n 6
	@echo "targets: install run test format lint types layers tests corpus docs man pictures dist-check fixtures coverage clean"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make ... PYTHON=/path/to/python")'
	$(PYTHON) -m venv $(VENV)

# The stamps make pip run again only when the dependencies or entry points changed.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	$(BIN)/python -m compileall -q openreadout plugins  # an editable install leaves that to the first run
	@touch $@

$(VENV)/.developed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@# Registers a codec of the same name as ours, so it must not be part of the environment.
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/aside "zarr-n5>=0.3; python_version >= '3.12'"
	$(BIN)/python -m compileall -q openreadout plugins
	@touch $@ $(VENV)/.installed

$(VENV)/.documented: pyproject.toml | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

$(VENV)/.released: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet 'build>=1.2' 'twine>=6'
	@touch $@

install: $(VENV)/.developed

run: $(VENV)/.installed
	rm -rf $(OUT)/cells.ome.zarr
	mkdir -p $(OUT)
	$(BIN)/openreadout info $(SAMPLE)
	$(BIN)/openreadout check --planes $(SAMPLE)
	$(BIN)/openreadout export $(SAMPLE) --to ome-zarr -o $(OUT)/cells.ome.zarr
	$(BIN)/openreadout info $(OUT)/cells.ome.zarr

test: lint types layers tests
check: test

format: $(VENV)/.developed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/.developed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.developed
	$(BIN)/mypy

layers: $(VENV)/.developed
	$(BIN)/lint-imports

tests: $(VENV)/.developed
	$(PYTEST) $(PYTEST_ARGS)

# Only the tests that read the collection of real files, which lies beside the checkout.
corpus: $(VENV)/.developed
	$(PYTEST) -m corpus $(PYTEST_ARGS)

# Left out are tests of what measuring itself changes: imports, time, and writing under a quota.
coverage: $(VENV)/.developed
	HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest --cov --cov-report=term $(PYTEST_ARGS) \
	  -k "not quota_on_file_sizes and not well_lists_of_millions and not importing_the_package_costs_nothing \
	  and not imports_no_array_library and not help_imports_nothing_heavy"

# Pages that are made from the program, then all pages as a site in site/; a link that leads nowhere is an error.
docs: $(VENV)/.documented
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python docs/generate_schema.py
	$(BIN)/python -m mkdocs build --quiet --strict

# The pictures of the README; not part of docs, since another version of a font, codec or library draws other bytes.
pictures: $(VENV)/.developed
	$(BIN)/python docs/generate_pictures.py

man: $(VENV)/.installed
	$(BIN)/python docs/generate_man.py man

# What would be released: built, its metadata checked, and the wheel at work in an environment that has nothing else.
dist-check: $(VENV)/.released
	rm -rf dist $(OUT)/empty
	mkdir -p $(OUT)
	$(BIN)/python -m build > $(OUT)/build.log
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv $(OUT)/empty
	$(OUT)/empty/bin/python -m pip install --quiet dist/*.whl
	cd $(OUT) && empty/bin/openreadout info ../$(SAMPLE)
	cd $(OUT) && empty/bin/openreadout export ../$(SAMPLE) --to ome-zarr -o empty/cells.ome.zarr

# Writers of fixed versions in an environment of their own, so that the result is the same byte for byte.
.venv-fixtures/.installed: fixtures/requirements.txt
	$(PYTHON) -m venv .venv-fixtures
	.venv-fixtures/bin/python -m pip install --quiet --requirement fixtures/requirements.txt
	@touch $@

fixtures: .venv-fixtures/.installed
	.venv-fixtures/bin/python fixtures/generate.py

clean:
	rm -rf $(VENV) .venv-fixtures $(OUT) build dist site man .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage
