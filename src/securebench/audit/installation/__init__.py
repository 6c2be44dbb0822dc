"""``securebench audit --self``: try the attacks of the catalogue, and report what contained them.

:mod:`.catalogue` reads ``audit/catalogue.yaml``. :mod:`.probes` defines what a probe is, and the ``*_probes`` modules
contain the probes. :mod:`.run` runs the probes, some on the host and the others on drivers. :mod:`.render` and
:mod:`.page` write the report.
"""
