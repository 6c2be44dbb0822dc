"""Files and directories that may be hostile, shared or full: the tools every package above uses."""
