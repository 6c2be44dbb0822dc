"""Judges code across two sandboxes.

::

    [tests' sandbox]  --REQUEST-->  host  --REQUEST-->  [candidate's sandbox]
     tests, expected                 |                   the candidate's code,
     values, verdict   <--REPLY---   |    <--REPLY---    arguments of calls
                       --VERDICT-->  |

The host relays frames and reads none but the verdict, which it takes from the tests' side alone (``relay.py``). The programs in the
sandboxes are ``guest/``: ``wire`` (frames), ``codec`` (plain data), ``peer`` (requests and replies), and a main program a side.
They travel over stdin: nothing is mounted, and neither argv nor the environment says anything.

What a test may use of a candidate: its functions, classes and constants by name, as free names; methods and attributes of its
objects, but no operators of them; exceptions, iterators, coroutines; functions of the tests as arguments. What it may not do
is in the docstrings of ``guest/codec.py`` and ``guest/tests.py``.

What a candidate learns: the arguments of each call, as it must. Never a test, an expected value or a verdict.
"""

from securebench.verifiers.code_completion.verifier import CodeCompletionVerifier

__all__ = ["CodeCompletionVerifier"]
