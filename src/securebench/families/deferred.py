"""The deferred families: their rows load and compile, but no verifier can judge them yet.

Their Pydantic models document the fields and the lanes of eval fields. The models are not enforced: rows may have other
fields. Such a field is public in ``input`` and hidden in ``eval``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict

from securebench.families.base import TAKES_FILES, Family
from securebench.resources import Visibility
from securebench.strict_input.models import OPTIONAL, WireModel
from securebench.tasks import CandidateKind

Hidden = Annotated[Any, Visibility.HIDDEN]
EvaluationInput = Annotated[Any, Visibility.EVALUATION_INPUTS]


class _Lenient(WireModel):
    model_config = ConfigDict(extra="allow")


class ToolCallInput(_Lenient):
    """A prompt, and the tools that may be called."""

    prompt: Any = OPTIONAL
    tools: list[Any] = OPTIONAL


class ToolCallEval(_Lenient):
    """The initial state, and the expected calls and final state."""

    initial_state: EvaluationInput = OPTIONAL
    expected_calls: Hidden = OPTIONAL
    expected_final_state: Hidden = OPTIONAL


class BrowserTaskInput(_Lenient):
    """A goal, and the page to start from."""

    goal: Any = OPTIONAL
    start_url: Any = OPTIONAL


class BrowserTaskEval(_Lenient):
    """Login credentials for the session, and how its final state is judged."""

    credentials: EvaluationInput = OPTIONAL
    success_check: Hidden = OPTIONAL


class DesktopTaskInput(_Lenient):
    """A goal, and the application to reach it in."""

    goal: Any = OPTIONAL
    app: Any = OPTIONAL


class DesktopTaskEval(_Lenient):
    """How the final state is judged."""

    success_check: Hidden = OPTIONAL


class ArtifactTaskInput(_Lenient):
    """The artifact to make, its type and its path."""

    brief: Any = OPTIONAL
    output_spec: Any = OPTIONAL


class ArtifactTaskEval(_Lenient):
    """A reference artifact, and how artifacts are judged."""

    reference_artifact: Annotated[Any, Visibility.HIDDEN, TAKES_FILES] = OPTIONAL
    rubric: Hidden = OPTIONAL


class MultimodalQaInput(_Lenient):
    """A question about the row's assets, and the choices that may answer it."""

    question: Any = OPTIONAL
    choices: Any = OPTIONAL


class MultimodalQaEval(_Lenient):
    """The answer, or how answers are judged."""

    answer: Hidden = OPTIONAL
    rubric: Hidden = OPTIONAL


class PreferencePairInput(_Lenient):
    """A prompt and two responses to it."""

    prompt: Any = OPTIONAL
    candidate_a: Any = OPTIONAL
    candidate_b: Any = OPTIONAL


class PreferencePairEval(_Lenient):
    """The better response, or a rubric that decides which one is better."""

    preference: Hidden = OPTIONAL
    rubric: Hidden = OPTIONAL


def _deferred(name: str, summary: str, inputs: type[WireModel], evals: type[WireModel]) -> Family:
    kind = CandidateKind.TEXT
    return Family(name=name, summary=summary, candidate_kind=kind, input_model=inputs, eval_model=evals, active=False)


TOOL_CALL: Final = _deferred("tool_call", "A prompt to answer by calling tools.", ToolCallInput, ToolCallEval)
BROWSER_TASK: Final = _deferred("browser_task", "A goal to reach in a browser.", BrowserTaskInput, BrowserTaskEval)
DESKTOP_TASK: Final = _deferred(
    "desktop_task", "A goal to reach in a desktop application.", DesktopTaskInput, DesktopTaskEval
)
ARTIFACT_TASK: Final = _deferred(
    "artifact_task", "A document or another artifact to make.", ArtifactTaskInput, ArtifactTaskEval
)
MULTIMODAL_QA: Final = _deferred(
    "multimodal_qa", "A question about images or other assets.", MultimodalQaInput, MultimodalQaEval
)
PREFERENCE_PAIR: Final = _deferred(
    "preference_pair", "Two responses, one of them better.", PreferencePairInput, PreferencePairEval
)
