"""Evidence about single tests: who reported what, which tests must fail, and what follows from both.

::

    test command ── recognise() ──→ adapter          one per test runner: how it starts, how it names tests
    trusted tests ─ plant() ─────→ controls          copies of the task's own tests, one assertion inverted
    sandbox ─────── channel ─────→ reported outcomes, exit code, fingerprints
                        all of it ─→ judge()         one judge for every runner

An adapter knows its runner and nothing else does. To add a runner: subclass :class:`~.adapter.Adapter`, add it to
``ADAPTERS`` in ``recognise.py``, and write what runs beside the tests in ``../guest`` with ``securebench_channel``.
"""
