"""Judges the workspace that an agent left by a checker, in a sandbox that the agent never was in.

::

    sealed workspace ── copy ──→  <workdir>                                  writable, a copy of this check alone
    evaluation inputs ─────────→  <workdir>/securebench/evaluation_inputs    read-only, from another directory
    expected_state                stays on the host

The sandbox is new, of the task's image (or ``checker.image``), without a network, with a fixed environment. The verdict
is the checker's exit code, as the driver reports it: no file, and nothing that is printed. With an ``expected_state``
the checker exits with 0 and prints the state that it found, as JSON, as its last line; the comparison is made here.

The sandbox is a persistent one, in which the checker is not the first process: who takes over the first process of an
ephemeral one decides its exit code, and a program of the candidate that the checker starts is of the same user. That
program may do to the checker itself what one process may do to another of the same user, unless the checker shuts it
out (``prctl(PR_SET_DUMPABLE, 0)``): how is in docs/how-to/write-a-checker.md.

What a checker prints is not recorded: it is made of evaluation inputs, and pieces of those are not always recognised
(F13). Its exit code is, so a checker says by its exit code what was wrong.
"""

from securebench.verifiers.terminal_task.verifier import TerminalTaskVerifier

__all__ = ["TerminalTaskVerifier"]
