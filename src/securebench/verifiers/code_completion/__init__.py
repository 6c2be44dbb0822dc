"""Judges code across two sandboxes.

::

    [tests' sandbox]  --REQUEST-->  host  --REQUEST-->  [candidate's sandbox]
     tests, expected                 |                   the candidate's code,
     values, verdict   <--REPLY---   |    <--REPLY---    arguments of calls
                       --VERDICT-->  |

The host relays frames and reads none but the verdict, which it takes from the tests' side alone (``relay.py``). The
programs in the sandboxes are ``guest/``: ``text`` (JSON), ``wire`` (frames), ``plain``, ``values`` and ``codec``
(plain data), ``errors`` (exceptions), ``peer`` (requests and replies), and a main program a side. The candidate's has
``shapes`` (takes its classes and objects apart) and ``lent`` (objects of the tests); the tests' has ``names``,
``run`` and ``notes`` (whose a name is, how the tests end and why), ``remote``, ``twins``, ``fields``, ``subclasses``,
``enums`` and ``described`` (stand-ins for objects and classes), ``arguments``, ``nan`` and ``results`` (tests that
pass for no good reason). They travel over stdin: nothing is mounted, and neither argv nor the environment says
anything.

What a test may use of a candidate is in ``docs/how-to/write-a-pack.md``. Containers are copies, and changes to those
that are arguments come back when the call returns; what a candidate keeps and changes later, or returns and changes
later, does not. Equality is computed on the tests' side, from data that has crossed; no code of a candidate takes
part.

What a candidate learns: the arguments of each call, as it must. Never a test, an expected value or a verdict.
"""

from securebench.verifiers.code_completion.verifier import CodeCompletionVerifier

__all__ = ["CodeCompletionVerifier"]
