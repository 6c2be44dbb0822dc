"""``securebench audit --self``: run the catalogue of attacks against this installation, and report what contained them.

:mod:`.catalogue` reads ``audit/catalogue.yaml``, :mod:`.probes` has the attacks that need no test suite, :mod:`.run`
makes them on each driver, and :mod:`.render` and :mod:`.page` show the report.
"""
