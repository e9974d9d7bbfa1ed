PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_FLAGS := --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test lint speed torture system-packages clean clean-kernels

run: $(VENV)/.installed
	$(BIN)/everlearn demo

test: system-packages lint $(VENV)/.installed-deep
	$(BIN)/python -m pytest -m "not torture"

lint: $(VENV)/.installed
	$(BIN)/ruff check everlearn tests benchmarks
	$(BIN)/ruff format --check everlearn tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

speed: $(VENV)/.installed-deep
	$(BIN)/everlearn speed

torture: $(VENV)/.installed-deep
	$(BIN)/python -m pytest -m torture

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) -e ".[cluster,video,dev]"
	touch $@

$(VENV)/.installed-deep: $(VENV)/.installed
	$(BIN)/python -m pip install $(PIP_FLAGS) -e ".[cluster,deep,video,dev]"
	touch $@

system-packages:
	bash tools/system-packages.sh

clean-kernels:
	find everlearn -name '*.nbi' -delete -o -name '*.nbc' -delete

clean: clean-kernels
	rm -rf $(VENV) build dist *.egg-info
