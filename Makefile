# `make demo` and `make test` do all the set-up and can be repeated. The rest is for daily work.

BIN := .venv/bin

.PHONY: help demo test test-all bench bench-long bench-peers profile lint format env env-dev sandboxes engine engine-stop image lock clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

# Tests and measurements start hundreds of processes. Without compiled files, each would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: env ## Set up what is missing, run the demo's benchmark packs, show the results
	@scripts/demo.sh

test: env-dev ## Set up what is missing, run the checks and tests that CI runs
	@scripts/test.sh $(ARGS)

test-all: env-dev ## Run every test, also those that take minutes, on Docker and on crun
	@scripts/test.sh --thorough $(ARGS)

bench: env-dev image ## Measure what sandboxes and the framework cost
	@$(BIN)/python perf/bench.py $(ARGS)

bench-long: env-dev image ## Measure runs of 10,000 text and 2,000 code tasks
	@$(BIN)/python perf/long_run.py $(ARGS)

bench-peers: env-dev image ## Measure other harnesses and SecureBench on one trivial task
	@$(BIN)/python perf/peers/run.py $(ARGS)

profile: env-dev image ## Measure where the time of a task goes, by family
	@$(BIN)/python perf/phases.py $(ARGS)

lint: env-dev ## Check style, format, types and layers
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-logo & layers=$$!; $(BIN)/mypy && wait $$layers

format: env-dev ## Fix style and format where a tool can
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

env: ## Create .venv for runs
	@scripts/setup_env.sh runtime

env-dev: ## Create .venv for checks and tests
	@scripts/setup_env.sh dev

sandboxes: env ## Install what both drivers need: a runtime, and a Docker Engine if possible
	@$(BIN)/python -m scripts.sandboxes test >/dev/null

engine: env ## Find a Docker Engine; install and start one if none answers
	@$(BIN)/python scripts/engine.py up

engine-stop: ## Stop the engine that was started here
	@$(BIN)/python scripts/engine.py down

image: sandboxes ## Build the base image, if it is missing
	@$(BIN)/securebench images build --install-tools

lock: ## Update requirements/ from pyproject.toml
	@scripts/lock.sh

clean: ## Remove .venv and the tools' caches
	@rm -rf .venv .cache/lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	@find src tests scripts perf -name __pycache__ -type d -prune -exec rm -rf {} +
