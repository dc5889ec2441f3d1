# Two commands are enough: `make demo` and `make test`. The others are for developers.
PYTHON  ?= python3
SUDO    := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
VENV    := .venv
BIN     := $(VENV)/bin

.PHONY: help demo test quick soak bench packages test-packages clean

help:
	@echo 'make demo    ext4, xfs and btrfs under PostgreSQL and MariaDB on loop files; about 10 minutes, 8 GiB of disk'
	@echo 'make test    every test          make quick   those without root          make soak   long forms'
	@echo 'make bench   how fast dbbench itself is, as ratios'

# Lists what it installs first; removes nothing, creates no cluster, starts no service.
packages:
	@$(PYTHON) dbbench/packages.py run
test-packages:
	@$(PYTHON) dbbench/packages.py run test

# The package and its locked dependencies in a folder of this checkout.
$(VENV)/.done: requirements.lock setup.cfg | packages
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
$(VENV)/.done-test: requirements-test.lock $(VENV)/.done | test-packages
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-test.lock
	@touch $@

demo: packages $(VENV)/.done
	@$(SUDO) $(BIN)/dbbench run docs/plans/demo.toml --name demo

test: test-packages $(VENV)/.done-test
	rm -f .coverage*
	$(BIN)/tox run
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
quick: $(VENV)/.done-test
	$(BIN)/tox run -e lint,quick
soak: test-packages $(VENV)/.done-test
	$(BIN)/tox run -e soak
bench: test-packages $(VENV)/.done-test
	$(SUDO) $(BIN)/python benchmarks/all.py

clean:
	rm -rf $(VENV) .tox build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage*
