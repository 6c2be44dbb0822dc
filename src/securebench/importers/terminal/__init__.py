"""Terminal tasks as Harbor and Terminal-Bench lay them out: a directory a task, judged by a script that runs pytest."""
