# Each target sets up what it needs and says what it does. Root is needed for the lab: it boots machines.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo --preserve-env=HOME,SPARKFLEET_CACHE,SPARKFLEET_LAB,XDG_CACHE_HOME)
BIN := .venv/bin
PYTHON := $(shell command -v python3)
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help demo test test-unit test-upstream test-lab test-long test-quiet test-engines lint lab-down lab-packages lock-dev

help:  ## What there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

demo: .venv/ready lab-packages  ## Two lab Sparks serve a real (tiny) model; run it again: nothing changes
	$(AS_ROOT) $(BIN)/sparkfleet lab up 2
	$(AS_ROOT) env PATH="$$PATH" $(BIN)/pyinfra -y inventory/lab.py deploy.py
	$(AS_ROOT) env PATH="$$PATH" $(BIN)/pyinfra -y inventory/lab.py tasks/verify.py
	@printf '%s\n' '' 'Next:' \
	  '  the same again, nothing changes   $(strip $(AS_ROOT) $(BIN)/pyinfra) -y inventory/lab.py deploy.py' \
	  '  look around on a host             $(strip $(AS_ROOT) $(BIN)/sparkfleet) lab ssh spark-01' \
	  '  your own Sparks                   edit inventory/sparks.py, then' \
	  '                                    $(BIN)/pyinfra inventory/sparks.py deploy.py' \
	  '  take the lab down                 make lab-down'

test: test-unit test-upstream test-lab  ## Everything a contributor needs to pass

test-unit: .venv/ready  ## Without hosts and downloads, a few minutes
	$(BIN)/pytest tests/unit

test-upstream: .venv/ready  ## Against the real wheels of vLLM, CUTLASS DSL and FlashInfer (downloaded once)
	$(BIN)/pytest tests/upstream

test-lab: .venv/ready lab-packages  ## On real hosts, booted on this machine
	$(AS_ROOT) env PATH="$$PATH" $(BIN)/pytest -m "lab and not long and not quiet" tests/lab

test-long: .venv/ready lab-packages  ## On real hosts, what takes its time: wheels handed out, status, bench
	$(AS_ROOT) env PATH="$$PATH" $(BIN)/pytest -m "long and not quiet" tests/lab

test-quiet: .venv/ready lab-packages  ## Two load generators must agree, on a machine that does nothing else
	$(AS_ROOT) env PATH="$$PATH" $(BIN)/pytest -m quiet tests/lab

test-engines: .venv/ready  ## The real engines: fetched, built for a Spark, overlaps and patches proved (20 GB, python3.12)
	$(AS_ROOT) env PATH="$$PATH" $(BIN)/pytest -m engines tests/engines

lint: .venv/ready  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lab-down: .venv/ready  ## Take the lab's hosts down; what was downloaded stays in the cache
	$(AS_ROOT) $(BIN)/sparkfleet lab down

lab-packages:
	@missing=$$(for package in debootstrap systemd-container iproute2; do \
	  dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || echo $$package; done); \
	if [ -n "$$missing" ]; then echo "Installing for the lab:" $$missing; \
	  $(AS_ROOT) apt-get update -qq; \
	  $(AS_ROOT) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi

lock-dev: .venv/ready  ## Make the hashed requirements of this machine's own packages again
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml -o requirements/run.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c requirements/run.txt pyproject.toml requirements/dev.in -o requirements/dev.txt

.venv/ready: requirements/dev.txt pyproject.toml
	@echo "Making the virtual environment .venv from requirements/dev.txt"
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -qq --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
