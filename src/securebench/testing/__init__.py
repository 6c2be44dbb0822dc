"""Testing: fakes, and the conformance suites that any driver must pass."""
