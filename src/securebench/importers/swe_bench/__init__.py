"""SWE-bench and data sets in its format: a real bug in a real repository, judged by the repository's tests."""
