# Watchline's own tasks. Only pip is used; where it gets packages from is pip's configuration.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install

# What OpenCV's window library needs of a bare Debian.
RUN_PACKAGES := libgl1 libglib2.0-0 libsm6 libxext6
TEST_PACKAGES := $(RUN_PACKAGES) ffmpeg xvfb xdotool xkb-data fonts-dejavu-core python3-gi \
  gir1.2-gst-rtsp-server-1.0 gir1.2-gst-plugins-base-1.0 \
  gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly \
  vlc-bin vlc-plugin-base

# Processes that run the tests. Most tests wait for timers, cameras and other processes: more than cores is faster.
JOBS ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo test test-field check venv system clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(VENV)/installed ## install, and run the sample: results in runs/demo/
	@$(BIN)/watchline demo

test: system $(VENV)/installed-test ## install with the tests' tools, and run every test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

test-field: system $(VENV)/installed-test ## faults from the field, as tests: broken files and cameras (minutes)
	$(BIN)/python -m pytest -m 'field and not slow' $(ARGS)

check: $(VENV)/installed-test ## ruff (rules and format), and mypy, over the tests too
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

venv: $(VENV)/installed ## make .venv and install into it

system: ## install the system packages that the tests use, where apt and the rights are there
	@.ci/packages $(TEST_PACKAGES)

clean: ## remove results and caches; the venv stays
	rm -rf build runs *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find app pipelines samples tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp each: a second `make demo` starts at once, a changed pyproject.toml installs again.
$(VENV)/installed: pyproject.toml | $(BIN)/python
	@.ci/packages $(RUN_PACKAGES)
	$(PIP) -e .
	@touch $@

$(VENV)/installed-test: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[test]'
	@touch $@ $(VENV)/installed

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Watchline needs Python 3.11 or newer, and \
	$(PYTHON) is $$($(PYTHON) --version 2>&1). Name a newer one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || .ci/packages python3-venv
	$(PYTHON) -m venv $(VENV)
