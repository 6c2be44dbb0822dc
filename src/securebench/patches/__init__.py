"""Changes to a file tree, as data and as git patches. Pure: no I/O and no git process."""
