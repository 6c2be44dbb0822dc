"""The events of the model harness's program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.egress.model import Trouble
from securebench.harnesses.model.guest.apis import REFUSED
from securebench.harnesses.provider.events.stream import number_of, text_of
from securebench.harnesses.provider.self_report import MAX_TEXT, EventParser, trouble_of_status

if TYPE_CHECKING:
    from securebench.harnesses.provider.events.stream import Event

_TOKENS: Final = ("input_tokens", "output_tokens")
_MAX_CODE: Final = 2**32


class ModelEventParser(EventParser):
    """Parses the events of the program in the sandbox, which :func:`~.guest.client.emit` prints."""

    def take(self, event: Event) -> None:
        """See :meth:`EventParser.take`."""
        match event.get("type"):
            case "prompt" | "malformed" as kind:
                self.trajectory.add(kind, text=text_of(event.get("text"), MAX_TEXT))
            case "answer":
                self._take_answer(event)
            case "command":
                self.trajectory.add("command", tool="shell", command=text_of(event.get("command"), MAX_TEXT))
            case "result":
                code = event.get("exit_code")
                is_code = isinstance(code, int) and abs(code) < _MAX_CODE
                output = text_of(event.get("output"), MAX_TEXT + 1)
                self.trajectory.add("result", output=output, exit_code=code if is_code else None)
            case "error":
                status = number_of(event.get("status"))
                trouble = trouble_of_status(status) if status else Trouble.UNREACHABLE
                self._fail(f"{status}: {text_of(event.get('text'), MAX_TEXT)}", trouble)
            case "end":
                self._complete(text_of(event.get("reason"), MAX_TEXT))

    def _take_answer(self, event: Event) -> None:
        report = self.self_report
        report.answer()
        report.turns += 1
        report.tokens = {name: report.tokens.get(name, 0) + number_of(event.get(name)) for name in _TOKENS}
        if thought := text_of(event.get("thought"), MAX_TEXT):
            self.trajectory.add("thought", text=thought)
        if event.get("text"):
            self._say(event.get("text"))

    def _complete(self, reason: str) -> None:
        report = self.self_report
        # If the model refused, the work failed, even if it left a workspace that could be judged.
        report.refused = report.failed = reason == REFUSED
        report.finished, report.stopped = not report.failed, reason
        self.trajectory.add("usage", turns=report.turns, end=reason, **report.tokens)
