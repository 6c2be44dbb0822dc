"""Judge an agent's changes to a repository in a fresh copy that no agent has touched.

The host computes the tree to be judged from data alone, without git (``plan.py``)::

    trusted tree = the image's repository + setup_patch
    final tree   = trusted tree + the candidate's changes + test_patch

If the candidate and ``test_patch`` change the same file, the final tree has the version of ``test_patch``. With a known
test runner, the host also adds controls (tests that must fail), and undoes the candidate's changes to protected files
(``selection.py``).

In a new sandbox, a script of SecureBench creates the final tree before any code of the candidate runs (``layout.py``).
Then the task's command runs (``checks.py``).

The candidate's code can forge evidence, because it runs in the same process as the tests. With a known test runner,
the host therefore checks the following (``evidence/``):

* Every expected test passed, as reported on a channel that is separate from the tests' output.
* No control passed.
* The code that the tests depend on did not change.
* The exit code matches the outcomes.

Any other command is judged by its exit code, and the record says ``assurance: exit_code``.

The output of tests is not recorded because it may contain evaluation inputs.
"""

from securebench.verifiers.repo_patch.verifier import RepoPatchVerifier

__all__ = ["RepoPatchVerifier"]
