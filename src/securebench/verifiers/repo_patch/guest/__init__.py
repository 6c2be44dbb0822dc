"""Code that runs beside the tests in the task's image, on Python 3.6 or later and with pytest 5 or later.

The directory is mounted read-only and contains no module that a repository would import by accident.
"""
