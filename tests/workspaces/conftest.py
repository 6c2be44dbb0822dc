"""The fixtures of hostile trees, which agents leave in workspaces."""

from forbidden_tools import no_tools  # noqa: F401 - a fixture
from fs.conftest import workspace  # noqa: F401 - a fixture
