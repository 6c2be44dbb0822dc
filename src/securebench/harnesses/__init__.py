"""Harnesses: from an agent's view of a task to a sealed candidate."""
