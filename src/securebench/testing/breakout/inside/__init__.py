"""The program that tries to break out: standard library only, Python 3.8 or later, sent over stdin.

``base`` defines an attempt and makes it, and ``main`` makes the requested ones; the other modules contain attempts.
Attempts avoid harm where possible: existing files of the host or the image that are opened for writing are not changed,
except the canary, and the clock and the host name are set to their current values.
"""
