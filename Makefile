# Users need `make demo` and `make install`, and `make test` to test. The other targets are for developers.
PYTHON  ?= python3
SUDO    := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
VENV    := .venv
BIN     := $(VENV)/bin
PREFIX  ?= /usr/local
MAN     := $(PREFIX)/share/man
LINK    := $(PREFIX)/bin/dbbench
# mypy under the other versions of Python that the lock files support; those that are not here are skipped by name.
# tox finds them in PATH and among those of pyenv.
export TOX_DISCOVER ?= $(shell ls -d "$$HOME"/.pyenv/versions/3.1[1-4].*/bin/python 2>/dev/null | paste -sd:)
OTHERS  := $(shell $(PYTHON) -c 'import sys; print(*(f"lint-py3{n}," for n in range(11, 15) if n != sys.version_info[1]), sep="")')

.PHONY: help root demo install uninstall own-link test test-all quick coverage soak bench releases machine dist image bundle release map docs packages test-packages clean

help:
	@echo 'make demo       benchmark ext4, xfs and btrfs with PostgreSQL and MariaDB on loop files (10 minutes, 8 GiB of disk)'
	@echo 'make install    install dbbench in .venv, with the link $(LINK)'
	@echo 'make uninstall  remove that link'
	@echo 'make test       run linters and the tests that every machine supports (18 minutes on two cores)'
	@echo 'make test-all   run tests that need long builds or repetition: second kernel, stock server, MySQL, other releases (50 minutes)'
	@echo 'make quick      run linters and the tests that do not need root (5 minutes)'
	@echo 'make coverage   run the unit tests with coverage (5 minutes)'
	@echo 'make soak       run the long tests: hundreds of kills and power losses (many hours)'
	@echo 'make bench      measure how fast dbbench itself is, as ratios (1 hour)'
	@echo 'make docs       run docs/tutorial.md and the demo; write their output into tutorial, README and docs/sample.html (20 minutes)'
	@echo 'make releases   RELEASE=debian13: run trials with another release; also sid, ubuntu2404 and ubuntu2604 (5 minutes)'
	@echo 'make machine    RELEASE=ubuntu2404: run the tests of the stock server with another release (30 minutes)'
	@echo 'make dist       build the wheel, the man pages and the .deb into dist/ (1 minute)'
	@echo 'make image      build a container image of the .deb, with buildah, podman or docker (3 minutes)'
	@echo 'make bundle     RELEASE=debian13: write one file for machines without a network [default: this release] (5 minutes)'
	@echo 'make release    run the release checklist, which stops at the first item that fails (hours)'

# Checked before anything is built.
root:
	@test -z "$(SUDO)" || command -v sudo >/dev/null || { echo 'error E202: $(REASON); you are not root, and there is no sudo'; echo '  Nothing was changed. $(REMEDY)'; exit 2; } >&2
# Lists what it installs first; removes nothing, creates no cluster, starts no service.
packages:
	@$(PYTHON) dbbench/packages.py run
test-packages:
	@$(PYTHON) dbbench/packages.py run test

# The package and its locked dependencies in a folder of this checkout.
$(VENV)/.done: requirements.lock setup.cfg packaging/launcher.sh | packages
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --retries 1 --require-hashes -r requirements.lock || { echo 'error E201: the Python packages of requirements.lock cannot be installed'; echo '  The lines above show the cause. A machine without a network needs a bundle, see docs/install.md.'; exit 2; } >&2
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	install -m 755 packaging/launcher.sh $(BIN)/dbbench
	@touch $@
$(VENV)/.done-test: requirements-test.lock $(VENV)/.done | test-packages
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-test.lock
	@touch $@

demo: REASON := the demo makes and mounts filesystems, which only root may
demo: REMEDY := As root:  make demo
demo: root packages $(VENV)/.done
	@plan=$$($(PYTHON) dbbench/packages.py --demo docs/plans/demo.toml) || exit; trap : INT TERM; \
	$(SUDO) $(BIN)/dbbench run "$$plan" --name demo; status=$$?; \
	command -v dbbench >/dev/null || echo 'The command dbbench of these messages is $(BIN)/dbbench; make install puts it into the PATH.' >&2; \
	exit $$status

# A link in PATH, also for other users and for the systemd units, and links to the man pages where `man` looks for them.
install uninstall: SUDO := $(shell [ "$$(id -u)" = 0 ] || { at="$(PREFIX)"; while [ ! -e "$$at" ]; do at=$$(dirname "$$at"); done; [ -w "$$at" ]; } || echo sudo)
install uninstall: REASON := $(PREFIX) belongs to another user
install uninstall: REMEDY := As root, or for yourself alone:  make $(MAKECMDGOALS) PREFIX="$$HOME/.local"
install: root own-link packages $(VENV)/.done
	$(BIN)/python packaging/man.py $(VENV)/share/man "$$(date +%F)"
	$(SUDO) install -d "$(PREFIX)/bin" "$(MAN)/man1" "$(MAN)/man5"
	$(SUDO) ln -sfn "$(CURDIR)/$(BIN)/dbbench" "$(LINK)"
	@for page in 1/dbbench.1 5/dbbench-plan.5; do $(SUDO) ln -sfn "$(CURDIR)/$(VENV)/share/man/$${page#*/}" "$(MAN)/man$$page"; done
uninstall: root own-link
	$(SUDO) rm -f "$(LINK)" "$(MAN)/man1/dbbench.1" "$(MAN)/man5/dbbench-plan.5"
# Refuse to replace or remove a file that `make install` did not create.
own-link:
	@for link in "$(LINK)" "$(MAN)/man1/dbbench.1" "$(MAN)/man5/dbbench-plan.5"; do \
	case "$$(readlink "$$link" || { test ! -e "$$link" || echo file; })" in ''|*/$(VENV)/*/dbbench*) ;; *) echo "error: $$link was not created by make install. Nothing was changed." >&2; exit 2 ;; esac; done

test: test-packages $(VENV)/.done-test
	$(BIN)/tox run -e tests
test-all: test-packages $(VENV)/.done-test
	$(BIN)/tox run -e $(OTHERS)long
quick: $(VENV)/.done-test
	$(BIN)/tox run -e quick
coverage: $(VENV)/.done-test
	rm -f .coverage*
	$(BIN)/tox run -e coverage
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
soak: test-packages $(VENV)/.done-test
	$(BIN)/tox run -e soak
bench: test-packages $(VENV)/.done-test
	$(SUDO) $(BIN)/python benchmarks/all.py
releases: test-packages $(VENV)/.done-test
	$(SUDO) $(BIN)/python -m tests.releases $(or $(RELEASE),debian13) $(if $(COMMAND),--command "$(COMMAND)")
machine: test-packages $(VENV)/.done-test
	$(SUDO) env DBBENCH_RELEASE=$(or $(RELEASE),debian13) $(BIN)/python -m pytest -c tox.ini --rootdir=. -m "long and not soak" tests/machine
dist: $(VENV)/.done
	$(BIN)/python packaging/artifacts.py
image:
	$(SUDO) $(BIN)/python packaging/artifacts.py image
bundle: $(VENV)/.done
	$(SUDO) env PYTHONPATH=. $(BIN)/python packaging/bundle.py $(RELEASE)
release: $(VENV)/.done-test
	$(BIN)/python packaging/release.py
# Runs every command of docs/tutorial.md and the demo, and writes their output into tutorial and README, with page and picture.
docs: map
	$(SUDO) $(BIN)/python docs/tutorial.py
	$(SUDO) $(BIN)/python docs/sample.py
map: $(VENV)/.done-test
	$(BIN)/python docs/map.py
	$(BIN)/python docs/errors.py
	$(BIN)/python docs/schema.py

clean:
	rm -rf $(VENV) .tox build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage*
	find . -name __pycache__ -prune -exec rm -rf {} +
