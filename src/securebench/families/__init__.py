"""Benchmark families, one file each: the only source of a family's fields, lanes and candidate kind."""
