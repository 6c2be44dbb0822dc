"""Judge code across two sandboxes.

::

    [tests' sandbox]  --REQUEST-->  host  --REQUEST-->  [candidate's sandbox]
     tests, expected                 |                   the candidate's code,
     values, verdict   <--REPLY---   |    <--REPLY---    arguments of calls
                       --VERDICT-->  |

The host relays frames. It parses only verdicts and failure reports, and accepts a verdict only from the tests' side
(``relay.py``). The programs in the sandboxes are in ``guest/``. They are sent over stdin: nothing is mounted, and argv
and the environment reveal nothing about the task. They consist of these modules:

* Both sides have ``text`` (JSON), ``wire`` (frames), ``plain``, ``values`` and ``codec`` (plain data), ``errors``
  (exceptions), ``operators``, ``shapes`` (descriptions of classes and objects) and ``peer`` (requests and replies).
  Each side has its own main program.
* The candidate's side also has ``lent`` (stand-ins for objects of the tests).
* The tests' side also has ``names`` (who defines a name), and ``run``, ``notes`` and ``hints`` (how the tests ended,
  and why). ``remote``, ``flows``, ``twins``, ``fields``, ``subclasses``, ``enums`` and ``described`` make stand-ins for
  the candidate's objects and classes. ``arguments``, ``nan`` and ``results`` find tests that would pass with a
  wrong candidate.
* ``forks`` lets one sandbox run the tests of many tasks. ``shared`` runs both sides in one process.

``docs/how-to/write-a-pack.md`` lists the features of a candidate that tests can use. Lists, dicts and other collections
are copied. Changes to arguments are copied back when the call returns. Later changes to values that the candidate kept
or returned are not copied. Equality is computed on the tests' side, from copied data, and never by an ``__eq__`` of the
candidate.

With two sandboxes, a candidate necessarily learns the arguments of each call, but never a test, an expected value or a
verdict.
"""

from securebench.verifiers.code_completion.verifier import CodeCompletionVerifier

__all__ = ["CodeCompletionVerifier"]
