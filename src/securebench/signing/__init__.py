"""Signatures over bytes: Ed25519 keys and where they are kept, DSSE envelopes, in-toto statements, Sigstore bundles."""
