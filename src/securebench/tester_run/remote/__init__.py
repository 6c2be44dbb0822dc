"""A run on many machines: what a worker gets, how it works, and what it returns."""
