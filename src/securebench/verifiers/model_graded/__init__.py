"""Grading by a judge model: the prompt, the votes, and the replies that a record keeps."""
