"""Verifiers of text answers: they judge a text by hidden values, without a sandbox."""
