"""Verifiers of text answers: they compare the final answer in a text with hidden values, without a sandbox."""
