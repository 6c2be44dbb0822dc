"""Programs that run inside a verifier's sandbox, never on the host. A pack contains its own copies of them."""
