"""Images built on top of others without an engine: files, sources, pinned wheels, and steps in a sandbox."""
