# What there is to do here: demo, test, check, native, sanitize, bench, bench-engine, acorn, golden. Each sets up what
# it needs in .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

KERNELS := src/onechip/kernels/cpu/native
KERNEL_SOURCES := setup.py $(wildcard $(KERNELS)/*.cc $(KERNELS)/*.h $(KERNELS)/*.map)

.PHONY: demo test check native sanitize bench bench-engine acorn golden clean
.DELETE_ON_ERROR:

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip setuptools
	$(BIN)/pip install --quiet --editable .
	touch $@ $(VENV)/.native

# The CPU's kernels, after their sources have changed; installing has built them the first time, if it could.
$(VENV)/.native: $(KERNEL_SOURCES) | $(VENV)/.installed
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[dev]'
	touch $@

$(VENV)/.acorn: $(VENV)/.dev
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[acorn]'
	touch $@

# torch lives in an environment of its own: the engine and its tests must work without it.
.venv-oracle/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-oracle
	.venv-oracle/bin/pip install --quiet --upgrade pip
	.venv-oracle/bin/pip install --quiet --editable '.[oracle]'
	touch $@

# Two arms of our engine on the embedded model, in a few minutes, offline once installed.
demo: $(VENV)/.installed $(VENV)/.native
	$(BIN)/onechip ladder acorn --quick --out demo-results

test: $(VENV)/.dev $(VENV)/.native
	$(BIN)/pytest

native: $(VENV)/.native

check: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Every engine that can be installed here, on acorn and on E2B's shape -> docs/ladder-cpu.md.
bench: $(VENV)/.dev $(VENV)/.native
	$(BIN)/python bench/ladder_cpu.py acorn greedy e2b write

bench-engine: $(VENV)/.dev $(VENV)/.native
	$(BIN)/python bench/engine.py

acorn: $(VENV)/.acorn
	$(BIN)/python -m tools.acorn.train

golden: .venv-oracle/.installed $(VENV)/.dev
	.venv-oracle/bin/python tests/golden/make.py

clean:
	rm -rf $(VENV) .venv-oracle demo-results
