# make demo    sets up, starts the iokernel and the key-value store, loads them, prints a table and writes a plot
# make test    sets up, checks style and types, runs every test
#
# Other targets: setup build lint types format sanitized test-asan test-tsan soak model clean. PYTHON=python3.12 chooses
# the interpreter, PYTEST_ARGS="-k ring" goes to pytest, CC=... chooses the C compiler, SOAK_S=600 how long each soak
# takes, SOAK_TOTAL_S=3600 how long all of them may take: those that do not fit are skipped.

PYTHON ?= python3
CC ?= gcc
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.corelane-setup
CLANG_FORMAT ?= clang-format-14
# Three more than there are CPUs: many tests wait for a disk, a time-out, another process.
JOBS ?= $(shell echo $$(($$(nproc) + 3)))
# Each worker has a stretch of the tests, in their order; who is done first takes half of what another one has left.
WORKERS = -n $(JOBS) --dist worksteal
PYTEST_ARGS ?=
SOAK_S ?= 180
SOAK_TOTAL_S ?=
FLOORS := runtime drivers iokernel libos apps bench cli
C_FILES = $(shell git ls-files -co --exclude-standard '*.c' '*.h' 2>/dev/null)

# Tests start hundreds of Python processes: without bytecode each compiles all that it imports, the test files with it.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup build test collected sanitized test-asan test-tsan soak model lint types check-format format demo clean

setup: $(STAMP)

# The compiler and venv are looked at first, so that what is missing is one line and not a page of pip's.
$(STAMP): pyproject.toml
	@command -v $(firstword $(CC)) >/dev/null || { echo "no C compiler: apt-get install gcc libc6-dev"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: PYTHON=..."; exit 1; }
	@test -x $(PY) || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); } || \
	    { rm -rf $(VENV); echo "cannot make a virtual environment: apt-get install python3-venv"; exit 1; }
	@echo "installing corelane and its test tools into $(VENV) (a few minutes the first time)"
	$(PY) -m pip install --disable-pip-version-check -e '.[test]'
	@sed -i '1s/python[0-9.]*$$/& -S/' $(VENV)/bin/corelane  # see cli/corelane
	@touch $@
	@echo "set up in $(VENV)"

build: $(STAMP)
	@$(PY) setup.py -q build_ext --inplace

demo: build
	@mkdir -p out
	@echo "measuring for about half a minute; first what the machine gives (all of it: $(VENV)/bin/corelane doctor)"
	@$(VENV)/bin/corelane bench demo --plot out/demo.png --json out/demo.json

test: build
	@$(MAKE) --no-print-directory -j 4 -O lint types check-format collected
	$(PY) -m pytest $(WORKERS) $(PYTEST_ARGS)

# pytest compiles the test files when it collects them, and keeps that: once here, beside mypy, instead of in each worker.
# Only those that have changed since.
collected: build/collected

build/collected: $(STAMP) $(shell find tests -name '*.py' 2>/dev/null)
	@mkdir -p build
	@set -- $(if $(filter $(STAMP),$?),tests,$(foreach file,$?,$(if $(filter test_%,$(notdir $(file))),$(file)))); \
	if [ $$# = 0 ]; then touch $@; else $(PY) -m pytest --collect-only -qq "$$@" >$@ || { cat $@; rm $@; }; fi

# The C programs of the tests for both sanitizers, compiled at idle priority: CI does so while the tests run.
sanitized: $(STAMP)
	PYTHONPATH=tests/support nice -n 19 chrt --idle 0 $(PY) -m cltest.cbuild asan tsan

# Only what runs C under the sanitizer is worth running again: the C programs. No other test is imported.
C_TESTS = $(shell grep -rlw --include='test_*.py' c_program tests)

test-asan: build
	CORELANE_SANITIZE=asan $(PY) -m pytest $(WORKERS) -m c_program $(PYTEST_ARGS) $(C_TESTS)

test-tsan: build
	CORELANE_SANITIZE=tsan $(PY) -m pytest $(WORKERS) -m c_program $(PYTEST_ARGS) $(C_TESTS)

# The interleavings of the hand-over of a core, further than make test goes: minutes and gigabytes each, one after the
# other.
model: build
	CORELANE_SOAK_S=$(SOAK_S) $(PY) -m pytest --timeout 0 -n 0 tests/iokernel/cores/test_model.py $(PYTEST_ARGS)

# Random kills of applications that fight for a core and of Raft groups, seeds by the ten thousand, models further than
# make test goes: what is marked `soak`, one after the other (tests/support/cltest/soak.py).
soak: build
	CORELANE_SOAK_S=$(SOAK_S) CORELANE_SOAK_TOTAL_S=$(SOAK_TOTAL_S) $(PY) -m pytest -s --timeout 0 -n 0 $(PYTEST_ARGS)

lint: $(STAMP)
	$(PY) -m ruff check .

# mypy sees the floors under the name that they install as, through symlinks: it knows no package-dir mapping.
types: $(STAMP)
	@rm -rf build/mypy && mkdir -p build/mypy/corelane
	@for f in $(FLOORS); do ln -s ../../../$$f build/mypy/corelane/$$f; done
	MYPYPATH=tests/support $(PY) -m mypy $(FLOORS:%=-p corelane.%) -p cltest -p loopsuites

# Files that have changed since all were in form; all of them if the form has.
check-format:
	@if ! command -v $(CLANG_FORMAT) >/dev/null; then \
	    echo "format check skipped: no $(CLANG_FORMAT) (apt-get install clang-format-14)"; \
	else $(MAKE) --no-print-directory build/formatted; fi

build/formatted: .clang-format $(wildcard $(C_FILES))
	@mkdir -p build
	@printf '%s\n' $(if $(filter .clang-format,$?),$(C_FILES),$?) | \
	    xargs -r -P $$(nproc) -n 50 $(CLANG_FORMAT) --dry-run -Werror
	@touch $@

format:
	$(PY) -m ruff check -q --fix . && $(PY) -m ruff format -q .
	@$(CLANG_FORMAT) -i $(C_FILES)

clean:
	rm -rf build dist out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf $(FLOORS:%=%/_native.abi3.so) runtime/_lib runtime/_include
	find $(FLOORS) tests -name __pycache__ -prune -exec rm -rf {} +
