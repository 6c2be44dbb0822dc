"""Evidence about single tests: which outcomes were reported, which tests must fail, and the verdict.

::

    test command ── recognise() ──→ adapter          one per test runner: how it starts, how it names tests
    trusted tests ─ plant() ─────→ controls          tests that must fail: most are copies with inverted assertions
    sandbox ─────── channel ─────→ reported outcomes, exit code, fingerprints
                        all of it ─→ judge()         one judge for every runner

In this package, only the adapters depend on the runner. To add a runner:

* recognize its command in :mod:`securebench.runner_commands`;
* subclass :class:`~.adapter.Adapter`, and in ``adapters.py``, extend ``ADAPTERS`` with a function that returns the
  adapter;
* write a reporter in ``../guest`` with ``securebench_channel``.
"""
