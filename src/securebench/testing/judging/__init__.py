"""Judge candidates as a run does, without a pack, a harness or records."""
