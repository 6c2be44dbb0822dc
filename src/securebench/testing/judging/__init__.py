"""Judge candidates of every family like a run does, without a pack, a harness or records."""
