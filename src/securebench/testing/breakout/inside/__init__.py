"""The program that tries to get out: standard library only, Python 3.8 or later, sent over stdin.

``base`` says what an attempt is and makes it, ``main`` makes those that it is told to; the other modules hold attempts.
Each is harmless where it works: what is opened for writing is not written, what is set is set to what it was.
"""
