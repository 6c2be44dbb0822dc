"""Candidates: what an agent left, sealed and content-addressed."""
