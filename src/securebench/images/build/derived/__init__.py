"""Building images without an engine: a base image plus files, sources, pinned wheels and the results of steps."""
