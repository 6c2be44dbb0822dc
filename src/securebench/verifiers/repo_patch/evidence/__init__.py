"""Evidence about single tests: which outcomes were reported, which tests must fail, and the verdict.

::

    test command ── recognise() ──→ adapter          one per test runner: how it starts, how it names tests
    trusted tests ─ plant() ─────→ controls          copies of the task's own tests, one assertion inverted
    sandbox ─────── channel ─────→ reported outcomes, exit code, fingerprints
                        all of it ─→ judge()         one judge for every runner

Only the adapter depends on the runner. To add a runner: subclass :class:`~.adapter.Adapter`, add it to ``ADAPTERS`` in
``adapters.py``, and write a reporter in ``../guest`` with ``securebench_channel``.
"""
