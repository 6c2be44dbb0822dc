"""Executors: they distribute the tasks of a run over workers."""
