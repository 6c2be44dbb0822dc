"""The program that tries to break out: standard library only, Python 3.8 or later, sent over stdin.

``base`` defines an attempt and makes it, and ``main`` makes the requested ones; the other modules contain attempts.
Attempts avoid harm where possible: files opened for writing are not changed, except the canary, and settings are set
to their current value.
"""
