# Two commands do all the set-up, each safe to run again: `make demo` and `make test`. The rest is for daily work.

BIN := .venv/bin

.PHONY: help demo test test-all bench bench-peers lint format env env-dev sandboxes engine engine-stop image lock clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: env ## Set up what is missing, run the demo's benchmark packs, show the results
	@scripts/demo.sh

test: lint ## Set up what is missing, run the checks and tests that CI runs
	@scripts/test.sh $(ARGS)

test-all: lint ## Run every test on every driver, also those that take minutes
	@scripts/test.sh --thorough $(ARGS)

bench: env-dev image ## Measure the framework's cost against the bare floor
	@$(BIN)/python perf/bench.py $(ARGS)

bench-peers: env-dev image ## Measure other harnesses on the same task; make bench then shows them
	@$(BIN)/python perf/peers/run.py

lint: env-dev ## Check style, format, types and layers
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: env-dev ## Mend style and format where a tool can
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

env: ## Make .venv with what a run needs
	@scripts/setup_env.sh runtime

env-dev: ## Make .venv with what the checks and tests need, too
	@scripts/setup_env.sh dev

sandboxes: env ## Get what both drivers need: a runtime, and a Docker Engine where one can be had
	@$(BIN)/python -m scripts.sandboxes test >/dev/null

engine: env ## Find a Docker Engine; where none answers, install and start one
	@$(BIN)/python scripts/engine.py up

engine-stop: ## Stop the engine that was started here, if one was
	@$(BIN)/python scripts/engine.py down

image: sandboxes ## Build the base image, if it is missing
	@$(BIN)/securebench images build --install-tools

lock: ## Write requirements/ anew from pyproject.toml
	@scripts/lock.sh

clean: ## Remove .venv and what the tools cached
	@rm -rf .venv .cache/lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	@find src tests scripts perf -name __pycache__ -type d -prune -exec rm -rf {} +
