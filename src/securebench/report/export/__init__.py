"""Exports of recorded runs: CSV, Markdown and Parquet tables, JUnit XML, ATIF trajectories and Inspect logs."""
