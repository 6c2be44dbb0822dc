"""Does what ``python -m pytest`` does, but adds the reporter, and loads pytest before anything of the repository."""

import sys
from os import getcwd
from os.path import dirname, join

import pytest
import securebench_report  # type: ignore[import-not-found] # next to this file, in the sandbox

if __name__ == "__main__":
    sys.path[0] = getcwd()
    sys.argv[0] = join(dirname(pytest.__file__), "__main__.py")
    sys.exit(pytest.main(sys.argv[1:], plugins=[securebench_report]))
