"""Ask the model through the relay, and try again if the provider fails."""

from __future__ import annotations

import http.client
import json
import sys
import time
from http.client import HTTPMessage
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from securebench.harnesses.model.guest.apis import INVALID

if TYPE_CHECKING:
    from securebench.harnesses.model.guest.apis import ModelApi, ModelReply

PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each new request after a failure: about half a minute, as for the built-in agents."""

_LONGEST_PAUSE: Final = 60.0
_OK: Final = 200
_ADAPTABLE: Final = (400, 422)
_TRY_AGAIN: Final = (408, 409, 429)
_FAILED: Final = 500
_SHOWN: Final = 2000


def emit(kind: str, **fields: Any) -> None:
    """Print an event for the harness."""
    sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
    sys.stdout.flush()


class ModelClient:
    """Sends the requests of a conversation to ``url``, the base URL of the relay."""

    def __init__(self, api: ModelApi, url: str, key: str) -> None:
        self.api = api
        self.turns = 0
        parts = urlsplit(url)
        self._address, self._base = (parts.hostname or "", parts.port), parts.path
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}", **api.headers}

    def show(self) -> None:
        """Report the prompt: the system prompt and the messages before the first answer."""
        said = [("system", text)] if (text := self.api.setup.get("system")) else []
        emit("prompt", text="\n\n".join(f"{role}: {text}" for role, text in [*said, *self.api.said]))

    def ask(self, *, with_shell: bool = False) -> ModelReply:
        """Return the model's next answer. Exits with status 1 if there is none."""
        self.turns += 1
        for pause in (*PAUSES, None):
            status, headers, data = self._post(self.api.body(with_shell=with_shell))
            if status == _OK and (reply := self._read(data)):
                return reply
            emit("error", status=status, text=_message(status, data))
            if status in _ADAPTABLE and self.api.adapt(data):
                continue
            if pause is None or not _may_try_again(status, headers):
                break
            time.sleep(max(pause, min(_seconds(headers.get("Retry-After")), _LONGEST_PAUSE)))
        sys.exit(1)

    def _read(self, data: bytes) -> ModelReply | None:
        try:
            reply = self.api.take(json.loads(data))
        except INVALID:
            return None
        emit("answer", **{**reply._asdict(), "calls": len(reply.calls)})
        return reply

    def _post(self, body: dict[str, Any]) -> tuple[int, HTTPMessage, bytes]:
        """Return status, headers and body of the answer; the status is 0 if there is none. The relay has timeouts."""
        connection = http.client.HTTPConnection(*self._address)
        try:
            connection.request("POST", self._base + self.api.path, json.dumps(body).encode(), self._headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        except (OSError, http.client.HTTPException) as error:
            return 0, HTTPMessage(), str(error).encode()
        finally:
            connection.close()


def _may_try_again(status: int, headers: HTTPMessage) -> bool:
    if headers.get("X-Should-Retry") == "false":
        return False
    return status in (0, _OK, *_TRY_AGAIN) or status >= _FAILED


def _seconds(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _message(status: int, data: bytes) -> str:
    text = data[:_SHOWN].decode("utf-8", "replace")
    return f"not a valid answer: {text}" if status == _OK else text
