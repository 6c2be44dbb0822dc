"""Images on top of others, made without an engine: files, sources, pinned wheels, and steps in a sandbox."""
