"""Testing: a scripted sandbox driver and a model provider for unit tests, and suites that every driver must pass."""
