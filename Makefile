# What there is to do here: demo, test, check, native, sanitize, bench, bench-engine, bench-cpu, bench-client,
# bench-rigs, acorn, golden. Each sets up what it needs in .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

KERNELS := src/onechip/kernels/cpu/native
KERNEL_SOURCES := setup.py $(wildcard $(KERNELS)/*.cc $(KERNELS)/*.h $(KERNELS)/*.map)

.PHONY: demo test check native sanitize bench bench-engine bench-cpu bench-client bench-rigs acorn golden clean
.DELETE_ON_ERROR:

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip setuptools
	$(BIN)/pip install --quiet --editable .
	touch $@ $(VENV)/.native

# The CPU's kernels, after their sources have changed; installing has built them the first time, if it could. The
# stamp has the time before, so that what is written meanwhile is newer.
$(VENV)/.native: $(KERNEL_SOURCES) | $(VENV)/.installed
	touch $@.begun
	$(BIN)/python setup.py --quiet build_ext --inplace
	mv $@.begun $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[dev]'
	touch $@

$(VENV)/.acorn: $(VENV)/.dev
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[acorn]'
	touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[bench]'
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

# Two at a time, since many tests wait for engines; a file's tests stay together and share what they set up.
test: $(VENV)/.dev $(VENV)/.native
	$(BIN)/pytest --numprocesses 2 --dist loadfile

native: $(VENV)/.native

# The kernels and their tests with the compiler's sanitizers, in a copy of the package.
SANITIZED := build/sanitize
SANITIZE := -std=c++20 -g -O1 -pthread -I$(KERNELS)
ADDRESS := -fsanitize=address,undefined -fno-sanitize-recover=undefined

sanitize: $(VENV)/.dev
	CXX='g++ $(ADDRESS)' $(BIN)/python setup.py --quiet build_py --build-lib $(SANITIZED) \
	  build_ext --debug --build-lib $(SANITIZED) --build-temp $(SANITIZED)/objects
	nm -D $(SANITIZED)/onechip/kernels/cpu/_native*.so | grep -q __asan # else the flags were not heard
	g++ $(SANITIZE) -fsanitize=thread tests/kernels/native/test_team.cc $(KERNELS)/team.cc -o $(SANITIZED)/test_team
	$(SANITIZED)/test_team
	for test in tiles team; do \
	  g++ $(SANITIZE) $(ADDRESS) tests/kernels/native/test_$$test*.cc $(SANITIZED)/objects/$(KERNELS)/*.o \
	    -o $(SANITIZED)/test_$$test && $(SANITIZED)/test_$$test || exit 1; \
	done
	PYTHONPATH=$(SANITIZED) LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 $(BIN)/pytest --capture=sys tests/kernels -k cpu

check: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Every engine that can be installed here, on acorn and on E2B's shape -> docs/ladder-cpu.md.
bench: $(VENV)/.dev $(VENV)/.native
	$(BIN)/python bench/ladder_cpu.py acorn greedy e2b write

bench-engine: $(VENV)/.dev $(VENV)/.native
	$(BIN)/python bench/engine.py

# Our kernels against the machine's bounds and torch's, and our engine beside llama.cpp on E2B's shape.
bench-cpu: $(VENV)/.dev $(VENV)/.native
	$(BIN)/python -m bench.kernels --out bench-results/kernels.md
	$(BIN)/python -m bench.cpu --out bench-results/cpu.md

# The ladder's client beside openai's, httpx and aiohttp.
bench-client: $(VENV)/.bench
	$(BIN)/python -m bench.client

# The ladder's client and `vllm bench serve` on one server; vLLM has to be installed (onechip ladder install vllm).
bench-rigs: $(VENV)/.dev $(VENV)/.native
	$(BIN)/python -m bench.rigs --controls

acorn: $(VENV)/.acorn
	$(BIN)/python -m tools.acorn.train

golden: .venv-oracle/.installed $(VENV)/.dev
	.venv-oracle/bin/python tests/golden/make.py

clean:
	rm -rf $(VENV) .venv-oracle demo-results build src/onechip/kernels/cpu/*.so
