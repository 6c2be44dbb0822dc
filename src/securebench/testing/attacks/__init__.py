"""Attacks as data: candidates, workspaces, changes and trees that try to pass without a solution or to do harm."""
