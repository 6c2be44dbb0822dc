"""Programs that run inside a verifier's sandbox, and never here. A pack carries its own copy."""
