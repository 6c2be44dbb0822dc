"""Executors: how the tasks of a run are spread over workers."""
