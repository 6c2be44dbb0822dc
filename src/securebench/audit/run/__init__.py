"""Checks of runs and suites, which may come from strangers. Most checks need only the files of the run."""
