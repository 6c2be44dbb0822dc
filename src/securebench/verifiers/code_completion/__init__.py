"""Judges code across two sandboxes.

::

    [tests' sandbox]  --REQUEST-->  host  --REQUEST-->  [candidate's sandbox]
     tests, expected                 |                   the candidate's code,
     values, verdict   <--REPLY---   |    <--REPLY---    arguments of calls
                       --VERDICT-->  |

The host relays frames and reads none but the verdict, which it takes from the tests' side alone (``relay.py``). The
programs in the sandboxes are ``guest/``: ``text`` (JSON), ``wire`` (frames), ``plain`` and ``codec`` (plain data),
``peer`` (requests and replies), ``remote`` (stand-ins for the candidate's objects), and a main program a side. They
travel over stdin: nothing is mounted, and neither argv nor the environment says anything.

What a test may use of a candidate: its functions, classes and constants, as free names; methods and attributes of its
objects, but no operators of them; exceptions, iterators, coroutines; functions of the tests as arguments. What
crosses is in ``guest/plain.py``. Containers are copies, and changes to those that are arguments come back when the
call returns; what a candidate keeps and changes later, or returns and changes later, does not.

What a candidate learns: the arguments of each call, as it must. Never a test, an expected value or a verdict.
"""

from securebench.verifiers.code_completion.verifier import CodeCompletionVerifier

__all__ = ["CodeCompletionVerifier"]
