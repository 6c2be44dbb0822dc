"""SWE-bench, and data sets of the same shape: a real fault in a real repository, judged by the repository's tests."""
