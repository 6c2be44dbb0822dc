"""Verifiers: from a sealed candidate to a verdict."""
