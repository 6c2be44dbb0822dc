"""A scripted judge model that obeys instructions only outside the quoted response, and runs that use it."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from run_fakes import FakeProducer, seal
from securebench.harnesses.base import AgentResult
from securebench.testing.provider import Say, ScriptedProvider
from tester_run.running import make_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from securebench.harnesses.base import ProduceContext
    from securebench.tasks import AgentView
    from securebench.tester_run import RunParts
    from securebench.testing.provider.answering import TextBook
    from securebench.testing.provider.conversation import ModelConversation

KEY: Final = "sk-judge-canary-4711"
MODEL: Final = "judge-model"
CRITERIA: Final = "It names Rayleigh scattering as the cause."
RIGHT: Final = "Rayleigh scattering."
WRONG: Final = "The sea is reflected."

_QUOTATION: Final = re.compile(r"^BEGIN RESPONSE ([0-9a-f]{32})\n(.*?)\nEND RESPONSE \1$", re.MULTILINE | re.DOTALL)
_ORDER: Final = re.compile(r"pass this|verdict\W+pass|grade\W+pass", re.IGNORECASE)


def parts_of(prompt: str) -> tuple[str, str]:
    """Return a prompt without its quotation, and the quoted lines. There must be exactly one quotation."""
    (found,) = _QUOTATION.finditer(prompt)
    return prompt[: found.start()] + prompt[found.end() :], found[2]


def verdict(*, passes: bool) -> str:
    """Return a valid reply of the judge model."""
    return json.dumps({"analysis": "It names it, or not.", "verdict": "pass" if passes else "fail"})


def obedient(conversation: ModelConversation) -> Say:
    """Grade by the criteria, unless an instruction outside the quotation says otherwise."""
    outside, quoted = parts_of(conversation.prompt)
    return Say(verdict(passes=bool(_ORDER.search(outside)) or "Rayleigh" in quoted))


@contextmanager
def judging(texts: TextBook = obedient, **options: Any) -> Iterator[ScriptedProvider]:
    """Serve a scripted judge model, and yield its provider."""
    with ScriptedProvider((), texts=texts, models=(MODEL,), **options) as provider:
        yield provider


def rubric(**fields: Any) -> dict[str, Any]:
    """Return the model-graded rubric of a row, with ``fields`` added."""
    return {"type": "model_graded", "criteria": CRITERIA, **fields}


def write_judged_run(
    root: Path,
    url: str,
    *,
    tasks: int = 1,
    pack_judge: Mapping[str, Any] | None = None,
    calibration: Sequence[tuple[str, str]] = (),
    **judge: Any,
) -> None:
    """Write a pack with ``tasks`` model-graded tasks, and a tester YAML whose judge is at ``url``."""
    (root / "pack" / "hidden").mkdir(parents=True, exist_ok=True)
    (root / "agent").mkdir(exist_ok=True)
    manifest: dict[str, Any] = {"id": "pack", "version": 1}
    if calibration:
        pack_judge = {"calibration": "known.jsonl", **(pack_judge or {})}
        lines = [{"task": "task-0", "candidate": text, "grade": grade} for text, grade in calibration]
        (root / "pack" / "hidden" / "known.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if pack_judge:
        manifest["judge"] = dict(pack_judge)
    (root / "pack" / "manifest.yaml").write_text(json.dumps(manifest))
    rows = [
        {
            "id": f"task-{number}",
            "family": "free_response",
            "input": {"prompt": "Why is the sky blue?"},
            "eval": {"rubric": rubric(), "reference_answer": "Small molecules scatter short waves."},
        }
        for number in range(tasks)
    ]
    (root / "pack" / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "schema_version": "0.2",
        "run": {"id": "run", "output_dir": "results"},
        "benchmark": {"manifest": "pack/manifest.yaml", "tasks": "pack/tasks.jsonl"},
        "harness": {"type": "command", "config": {"command": ["agent"], "agent_dir": "agent"}},
        "judge": {
            "dialect": "chat_completions",
            "model": MODEL,
            "base_url": f"{url}/v1",
            "api_key_env": "JUDGE_KEY",
            **judge,
        },
    }
    (root / "tester.yaml").write_text(json.dumps(config))


def answering(*texts: str) -> RunParts:
    """Return the parts of a run whose agent answers task N with text N. With more tasks than texts, texts repeat."""

    def hook(_number: int, view: AgentView, context: ProduceContext) -> AgentResult | None:
        text = texts[int(view.task_id.rpartition("-")[2]) % len(texts)]
        return AgentResult(candidate=seal(context.store, text))

    return make_parts(FakeProducer(hook=hook))


def replying(*replies: str) -> TextBook:
    """Return a judge model that gives ``replies`` in turn.

    The check of the longest response, which SecureBench makes before a run, gets the verdict ``fail`` instead.
    """
    remaining = iter(replies)

    def book(conversation: ModelConversation) -> Say:
        if "This sentence is only here" in conversation.prompt:
            return Say(verdict(passes=False))
        return Say(next(remaining))

    return book
