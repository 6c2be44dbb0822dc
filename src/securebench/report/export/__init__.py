"""Runs in the formats of other programs: spreadsheets, continuous integration, trajectories, Inspect."""
