"""HTML reports of runs: as one self-contained page in a file, or as several pages from a local server.

Everything that an agent wrote is hostile. It appears only as escaped text of limited size. The Content-Security-Policy
of a page forbids it to load or run anything. Only a live page may run a script, which loads the page again from the
server. Pages need the extra ``report``, and the server needs ``view``.
"""
