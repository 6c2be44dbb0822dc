"""Workspaces: where a task's files are laid out, and how what is left there is read."""
