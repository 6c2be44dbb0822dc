"""A run whose every text tries to become part of the page, to load something, or to look like a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import synthetic_run
from securebench.errors import FailurePhase, FailureReason
from securebench.results.record import Failure, Output, VerificationStatus, candidate_fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.record import TaskRecord

MARK: Final = "hostile7f3a"
"""Part of every attack: no name, attribute or address of a page may contain it."""

_ATTACKS: Final = (
    "<script>alert('hostile7f3a')</script>",
    "</pre></figure></details></main><h1 id=hostile7f3a class=hostile7f3a>100.0%</h1>",
    "</style><style>body{display:none;background:url(//hostile7f3a.example/x)}</style>",
    "</title></textarea></template><template><script>alert('hostile7f3a')</script></template>",
    "<svg onload=alert('hostile7f3a')><image href=http://hostile7f3a.example/x.png></svg>",
    '"><img src=http://hostile7f3a.example/x onerror=alert(1)>',
    "<iframe src='data:text/html,<script>alert(1)//hostile7f3a</script>'></iframe>",
    "<meta http-equiv=refresh content='0;url=http://hostile7f3a.example/'>",
    "<base href=http://hostile7f3a.example/><link rel=stylesheet href=//hostile7f3a.example>",
    "<a href=javascript:alert('hostile7f3a')>javascript:alert(1)</a> <form action=//hostile7f3a.example>",
    "&lt;script&gt;hostile7f3a&#60;script&#x3e; &quot; &amp;",
    "{{ 7*7 }} {% include 'hostile7f3a' %} {# #} ${alert(1)}",
    "<!-- hostile7f3a --> <![CDATA[ ]]> <?php ?> --> ]]>",
    "\x1b[2J\x1b]0;hostile7f3a\x07\x1b]8;;http://hostile7f3a.example\x1b\\ \r\x00\x7f\x9b31m",
    "hostile7f3a\u202egnp.exe\u2066 \u200b\ufeff\u2028\u2029\ud800\ufffe",
    "\u2713 passed\n100.0% pass rate hostile7f3a",
    "hostile7f3aZ" + "\u0321\u0334\u0300\u0301" * 200,
)
TEXT: Final = "\n".join(_ATTACKS)


def write_hostile_run(directory: Path) -> Path:
    """Write a run of failed and passed tasks in which every text that an agent or a pack can choose is an attack."""
    harness: JsonValue = {"type": "command", "name": TEXT[:200], "digest": "ab" * 32, "env": {}}
    agent: JsonValue = {"program": TEXT, "version": TEXT, "model": TEXT, "provider": TEXT, "endpoint": TEXT}
    header = synthetic_run.header(len(_ATTACKS) + 2, harness=harness, agent=agent).with_problem(TEXT)
    directory.mkdir(parents=True)
    return synthetic_run.write_run(directory, _records(directory), header)


def _records(directory: Path) -> Iterator[TaskRecord]:
    for number, attack in enumerate(_ATTACKS):
        status = VerificationStatus.FAILED if number % 4 else VerificationStatus.PASSED
        task_id = f"{attack[:150]} {number}"
        failure = Failure(FailureReason.WRONG_ANSWER, FailurePhase.VERIFY, TEXT)
        patch = "".join(f"{sign}{line}\n" for line in TEXT.split("\n") for sign in "+-@ ")
        steps = synthetic_run.trajectory(directory, task_id, {"type": attack, attack: [TEXT]}, TEXT)
        usage = {"relay": {"models": {attack: 3}}, "input_tokens": 10}
        driver = {"name": attack, "runtime": attack, "version": attack, "enforced": [attack], "weaker": [attack]}
        yield synthetic_run.record(
            number,
            status,
            task_id=task_id,
            tags=(attack,),
            candidate={
                **candidate_fields(None, None),
                ("candidate_patch" if number % 2 else "candidate_text"): patch,
                "candidate_digest": "ab" * 32,
            },
            producer=Output(stdout=TEXT, stderr=TEXT, metadata={"harness": "command", attack: TEXT}),
            verifier=Output(stdout=TEXT, metadata={"phase": attack, attack: TEXT, "violations": [TEXT]}),
            resource_summary=[{"name": attack, "visibility": "public", "kind": "value", "value": TEXT}],
            failure=None if status is VerificationStatus.PASSED else failure,
            provenance={**steps, "usage": usage, "spent": usage, "driver": driver},
        )
