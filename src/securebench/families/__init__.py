"""Benchmark families: the only source of a family's fields, lanes and candidate kind.

Each active family has its own file. The deferred families share one file.
"""
