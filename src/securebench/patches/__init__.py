"""Changes to a tree of files: as data, and as the patches that people and git read. Pure: no I/O, no git."""
