"""Terminal tasks in the formats of Harbor and Terminal-Bench: one directory per task, judged by a pytest script."""
