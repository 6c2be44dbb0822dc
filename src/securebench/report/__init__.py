"""HTML reports of runs: one self-contained page, or the same pages from a local server.

Everything that an agent wrote is hostile. It appears only as escaped text of limited size. A page may load and run
nothing (Content-Security-Policy), except for the script of a live page. The modules need the extras ``report`` and
``view``.
"""
