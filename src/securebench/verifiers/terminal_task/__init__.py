"""Judges the workspace that an agent left: runs a checker over a copy, in a sandbox in which the agent never ran.

::

    sealed workspace ── copy ──→  <workdir>                                  writable, a copy for this check only
    evaluation inputs ─────────→  <workdir>/securebench/evaluation_inputs    read-only, from another directory
    expected_state                stays on the host

The sandbox is new and has no network. It uses the task's image (or ``checker.image``) and a fixed environment. The
checker's exit code, as the driver reports it, decides the verdict. Files that the checker writes are ignored. Its
output is used only if the task has an ``expected_state``: the checker must then exit with 0 and print the state that it
found, as JSON on its last line. The host compares the two states.

If the checker starts programs of the candidate, they run as the checker's user. The sandbox is persistent, so its
first process is not the checker. In an ephemeral sandbox, the checker would be the first process, and a program that
took over that process would decide the exit code. A program of the candidate can still do to the checker what any
process can do to another process of the same user, unless the checker prevents this (``prctl(PR_SET_DUMPABLE, 0)``).
See docs/how-to/write-a-checker.md.

Records do not contain what a checker prints. Its output may contain evaluation inputs, and redaction does not recognize
every part of them (F13 in docs/explanation/security.md). With ``--keep-verifier-output``, the output is kept in files
beside the records. The exit code is recorded, so a checker can use it to report what was wrong.
"""

from securebench.verifiers.terminal_task.verifier import TerminalTaskVerifier

__all__ = ["TerminalTaskVerifier"]
