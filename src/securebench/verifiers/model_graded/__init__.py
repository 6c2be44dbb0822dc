"""Grading by a judge model: the prompt, the votes, the replies that a record keeps, and the calibration."""
