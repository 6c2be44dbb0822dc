"""HTML reports of runs: one self-contained page, or the same pages from a local server.

Everything that an agent wrote is hostile. It appears only as escaped text in a labelled box, the page may not load or
run anything (Content-Security-Policy), and its size is bounded. The modules need the extras ``report`` and ``view``.
"""
