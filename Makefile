PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LENGTH ?= 1
# pip compiles what it installs: where no bytecode is written, every process would do it again.
PIP_FLAGS := --quiet --disable-pip-version-check -c constraints.txt

CORE := support world_model online continual_bench worlds planning runs results test_registry.py \
	test_cli.py

.PHONY: run test core lint docs dist speed torture audit bill system-packages clean clean-kernels \
	kernels-online kernels-double kernels-deep

run: $(VENV)/.installed-core
	$(BIN)/everlearn demo
	@echo "(the commands are in $(BIN); activate it with: . $(BIN)/activate)"

test:
	@$(MAKE) --no-print-directory -j3 LINTED_WITH=$(VENV)/.installed-deep \
		system-packages kernels-online kernels-double lint kernels-deep
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup -m "not torture"

# Some tests first, while pip installs the rest and lint runs: they compile what all workers need,
# once.
kernels-online kernels-double: $(VENV)/.installed-first
kernels-deep: $(VENV)/.installed-deep
kernels-online kernels-double kernels-deep:
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 -q --no-header --durations=0 \
		-m "not torture" $(FIRST)

kernels-online: FIRST := tests/audit/test_run.py tests/online/test_model.py \
	tests/runs/test_run.py -k "read_in_order or pure_and_batched or same_seed_same_bits"
kernels-double: FIRST := tests/online/test_forgetting.py tests/online/test_learning.py \
	-k "without_a_change or robot_transitions and float64"
kernels-deep: FIRST := tests/contracts/test_agents.py tests/deep/test_rollout_kernel.py \
	-k "same_seed and (mlp or sac) or zero_for_all"

# Tests of what needs neither torch nor Ray nor a browser, with another Python:
# make core PYTHON=python3.13 VENV=.venv-3.13
core:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) -e ".[video]" pytest pytest-timeout pytest-xdist \
		hypothesis packaging
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup \
		-m "not torture" $(addprefix tests/,$(CORE)) \
		-k "not mlp and not sac and not deep and not papers_agent"

# One installation at a time: `test` lints with what it installs for the tests.
LINTED_WITH := $(VENV)/.installed
lint: $(LINTED_WITH)
	$(BIN)/ruff check everlearn tests benchmarks tools
	$(BIN)/ruff format --check everlearn tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation site, in site/; warnings are errors. Searching it needs a server.
docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs build --strict --quiet --site-dir site
	@echo "open site/index.html, or run: python3 -m http.server --directory site"

# Source distribution and wheel, in dist/.
dist: $(VENV)/.installed
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

speed: $(VENV)/.installed-deep
	$(BIN)/everlearn speed

# Hours; LENGTH=0.01 does a hundredth of everything, and ARGS are further options of pytest. The
# counts are stored, and `python tools/show_results.py` puts them into docs/reliability.md.
torture: $(VENV)/.installed-deep
	TORTURE_LENGTH=$(LENGTH) TORTURE_RESULTS=$(CURDIR)/results/torture.json \
		$(BIN)/python -m pytest -m torture $(ARGS)

# Against the public lists of known holes, so it needs the network; it does not pass without them.
audit: $(VENV)/.installed
	$(BIN)/python tools/audit_dependencies.py constraints.txt

# The wheel, and what is in it and below it.
bill: $(VENV)/.installed-deep dist
	$(BIN)/python tools/bill_of_materials.py dist/everlearn-*.whl

# What running and watching needs; tests and the rest need more.
$(VENV)/.installed-core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) -e ".[suite,video,view]"
	touch $@

# What the first tests need: everlearn without extras.
$(VENV)/.installed-first: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) -e . pytest pytest-timeout pytest-xdist hypothesis
	touch $@

# All at once, as pip takes its time to look at what is there already.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) -e ".[cluster,docs,suite,video,view,dev]"
	touch $(VENV)/.installed-core $@

$(VENV)/.installed-deep: pyproject.toml constraints.txt $(VENV)/.installed-first
	$(BIN)/python -m pip install $(PIP_FLAGS) -e ".[cluster,deep,docs,suite,video,view,dev]"
	touch $(VENV)/.installed-core $(VENV)/.installed $@

system-packages:
	bash tools/system-packages.sh

clean-kernels:
	find everlearn -name '*.nbi' -delete -o -name '*.nbc' -delete

clean: clean-kernels
	rm -rf $(VENV) build dist site *.egg-info
