"""Judges what an agent changed in a repository, in a fresh copy of that repository, where no agent ever was.

::

    pristine tree of the image ─ setup_patch ─→ trusted tree ─ test_patch ─→ tests, as the task has them
             │                                      │                            │
             └── the sealed candidate's changes ────┴── carried over ────────────┴──→ final tree ─→ fresh sandbox

Everything up to the final tree is computed on the host, without git, from data alone (``plan.py``). The final tree's
differences from the image are laid over the repository in a new sandbox of the image by a script of ours, before
anything of the candidate runs there (``layout.py``); then the task's command runs (``checks.py``).

The candidate's code runs in the process that judges it: no evidence from there is beyond doubt. Where the runner is
one that we know, tampering shows (``evidence/``): outcomes come on a channel that prints do not reach, expected tests
must each have passed, controls, which are copies of tests with one assertion inverted, must each have failed, what the
tests depend on must be what it was before, and the exit code must be what follows from that. Any other command is
judged by its exit code, and the record says ``assurance: exit_code``.

What tests print is not recorded: it is made of evaluation inputs.
"""

from securebench.verifiers.repo_patch.verifier import RepoPatchVerifier

__all__ = ["RepoPatchVerifier"]
