"""Judge candidates like a run does, without a pack, a harness or records."""
