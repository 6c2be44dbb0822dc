"""Judge an agent's changes to a repository in a fresh copy that no agent has touched.

::

    pristine tree of the image ─ setup_patch ─→ trusted tree ─ test_patch ─→ tests, as the task has them
             │                                      │                            │
             └── the sealed candidate's changes ────┴── carried over ────────────┴──→ final tree ─→ fresh sandbox

The host computes the final tree from data alone, without git (``plan.py``). In a new sandbox of the image, a script of
SecureBench turns the repository into this tree before any code of the candidate runs (``layout.py``).
Then the task's command runs (``checks.py``).

The candidate's code runs in the same process as the tests, so evidence from this process can be forged. With a known
test runner, several checks detect tampering (``evidence/``): outcomes use a channel separate from the tests' output,
every expected test must pass, every control (a test that must fail) must fail, the code that the tests depend on must
not change, and the exit code must match the outcomes. Any other command is judged by its exit code, and the record
says ``assurance: exit_code``.

The output of tests is not recorded because it may contain evaluation inputs.
"""

from securebench.verifiers.repo_patch.verifier import RepoPatchVerifier

__all__ = ["RepoPatchVerifier"]
