"""Checks of finished runs, and of this installation."""
