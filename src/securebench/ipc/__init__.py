"""Processes that talk to each other: frames over a socket, and a supervised child process.

Child processes import this package too. They start without ``site-packages``, so it uses no third-party package.
"""
