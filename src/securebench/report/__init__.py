"""HTML reports of runs: as one self-contained page in a file, or as several pages from a local server.

Everything that an agent wrote is hostile. It appears only as escaped text of limited size. A page may load and run
nothing (Content-Security-Policy), except that a live page has a script, which loads the page again from its server.
Pages need the extra ``report``, and the server needs ``view``.
"""
