"""The files of a run directory: the header, the journal, the logs, and how they are read from a stranger."""
