"""What runs beside the tests, inside the task's image: on Python 3.6 or later, with pytest 5 or later.

Its directory is shown to the sandbox read-only, and holds nothing that a repository would import by accident.
"""
