"""Processes that talk to each other: frames over a socket, and a supervised child process.

Child processes import this package too, and some start without ``site-packages``: it needs the standard library alone.
"""
