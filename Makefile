# Two commands matter: `make demo` and `make test`. Everything is installed into .venv, with pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PARTS := ffmpeg xvfb xdotool python3-gi gir1.2-gst-rtsp-server-1.0 gir1.2-gst-plugins-base-1.0 \
  gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly \
  fonts-dejavu-core libgl1 libglib2.0-0 libegl1 libxkbcommon-x11-0 libxcb-cursor0 libxcb-icccm4 libxcb-image0 \
  libxcb-keysyms1 libxcb-randr0 libxcb-render-util0 libxcb-shape0 libxcb-xinerama0 libdbus-1-3

.PHONY: help demo test check system clean

help:
	@echo "make demo    install into .venv and run the shipped sample; look at runs/demo/annotated.mp4"
	@echo "make test    install what the tests need and run them all"
	@echo "make check   ruff and mypy"
	@echo "make clean   remove .venv, caches and runs"

demo: $(VENV)/.demo
	$(BIN)/watchline demo

test: $(VENV)/.test system
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/mypy

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Watchline needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "python3-venv is missing; on Debian: apt-get install python3-venv"; exit 1; }
	touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

# The system's parts of the tests: a real RTSP server, a display without a screen, a keyboard for it, ffmpeg. Installed
# only where something is missing and apt and the rights are there; tests that miss a part say so and are skipped.
system:
	@missing=""; for p in $(PARTS); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "not a Debian system; tests may be skipped for want of:$$missing"; exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then as=""; elif sudo -n true 2>/dev/null; then as="sudo"; \
	else echo "no rights to install; tests may be skipped for want of:$$missing"; exit 0; fi; \
	echo "installing:$$missing"; \
	$$as apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$as apt-get install -y -qq --no-install-recommends $$missing >/dev/null

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache runs
