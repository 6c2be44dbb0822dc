"""The plan of a run: the tasks, the directory, the capacity, and every check before the first task."""
