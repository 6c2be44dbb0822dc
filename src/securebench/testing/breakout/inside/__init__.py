"""The program that tries to break out: standard library only, Python 3.8 or later, sent over stdin.

``base`` contains the functions that make an attempt, ``main`` makes the requested attempts, and the other modules
contain the attempts. Attempts avoid harm where possible: they open existing files of the host or the image for writing,
but change only the canary. They set the clock and the host name to their current values.
"""
