"""Fixtures for tests with hostile trees, such as agents may leave in workspaces."""

from forbidden_tools import no_tools  # noqa: F401 - a fixture
from fs.conftest import workspace  # noqa: F401 - a fixture
