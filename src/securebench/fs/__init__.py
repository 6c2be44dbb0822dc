"""Tools for files and directories that may be hostile, shared, or on a full disk."""
