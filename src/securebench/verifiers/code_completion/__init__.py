"""Judge code across two sandboxes.

::

    [tests' sandbox]  --REQUEST-->  host  --REQUEST-->  [candidate's sandbox]
     tests, expected                 |                   the candidate's code,
     values, verdict   <--REPLY---   |    <--REPLY---    arguments of calls
                       --VERDICT-->  |

The host relays frames. It reads only the verdict, which it accepts only from the tests' side (``relay.py``). The
programs in the sandboxes are in ``guest/``: ``text`` (JSON), ``wire`` (frames), ``plain``, ``values`` and ``codec``
(plain data), ``errors`` (exceptions), ``peer`` (requests and replies), and a main program for each side. The
candidate's side also has ``shapes`` (inspects its classes and objects) and ``lent`` (objects of the tests). The tests'
side has ``names``, ``run`` and ``notes`` (who defines a name, how the tests ended and why); ``remote``, ``twins``,
``fields``, ``subclasses``, ``enums`` and ``described`` (stand-ins for objects and classes); and ``arguments``, ``nan``
and ``results`` (tests that pass for no good reason). ``forks`` lets one sandbox run the tests of many tasks. The
programs are sent over stdin: nothing is mounted, and argv and the environment reveal nothing.

``docs/how-to/write-a-pack.md`` lists what tests can use of a candidate. Containers are copied. Changes to arguments are
copied back when the call returns; later changes of values that the candidate kept or returned are not. Equality is
computed on the tests' side, from copied data, without running code of the candidate.

A candidate necessarily learns the arguments of each call, but never a test, an expected value or a verdict.
"""

from securebench.verifiers.code_completion.verifier import CodeCompletionVerifier

__all__ = ["CodeCompletionVerifier"]
