"""Checks of a run directory, which may come from a stranger. They need only the files of the run."""
