"""Ask the model through the relay, and try again if the provider fails."""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from securebench.harnesses.model.guest.apis import INVALID

if TYPE_CHECKING:
    from securebench.harnesses.model.guest.apis import ModelApi, ModelReply

PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds to wait before each retry, unless the provider asks for more. The waits add up to half a minute."""

_LONGEST_PAUSE: Final = 60.0
_OK: Final = 200
_ADAPTABLE: Final = (400, 422)
_TRY_AGAIN: Final = (408, 409, 429)
_FAILED: Final = 500
_SHOWN: Final = 2000
_PIECE: Final = 64 * 1024


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
        self._address, self._base = (parts.hostname or "", parts.port or 80), parts.path
        self._headers = {
            "Host": parts.netloc,
            "Content-Type": "application/json",
            "Authorization": f"Bearer {key}",
            **api.headers,
        }

    def show(self) -> None:
        """Report the prompt: the system prompt and the messages before the first answer."""
        messages = [("system", text)] if (text := self.api.setup.get("system")) else []
        emit("prompt", text="\n\n".join(f"{role}: {text}" for role, text in [*messages, *self.api.transcript]))

    def ask(self, *, with_shell: bool = False) -> ModelReply:
        """Return the model's next answer. Exits with status 1 if the provider sends no valid answer.

        Failures that may be temporary are retried first.
        """
        self.turns += 1
        pauses, may_adapt = iter(PAUSES), True
        while True:
            status, headers, data = self._post(self.api.body(with_shell=with_shell))
            if status == _OK and (reply := self._read(data)):
                return reply
            emit("error", status=status, text=_message(status, data))
            if may_adapt and status in _ADAPTABLE and self.api.adapt(data):
                may_adapt = False
                continue
            pause = next(pauses, None)
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

    def _post(self, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the answer. If there is no answer, the status is 0 and the body says why.

        There is no timeout here, because the relay has one. With HTTP/1.0, the end of the connection ends the answer.
        Python's HTTP library is not used, because loading it would take longer than loading the rest of the program.
        """
        data = json.dumps(body).encode()
        lines = {**self._headers, "Content-Length": str(len(data))}.items()
        head = f"POST {self._base}{self.api.path} HTTP/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in lines)
        try:
            with socket.create_connection(self._address) as connection:
                connection.sendall(head.encode() + b"\r\n" + data)
                answer = b"".join(iter(lambda: connection.recv(_PIECE), b""))
        except OSError as error:
            return 0, {}, str(error).encode()
        begun, _, rest = answer.partition(b"\r\n\r\n")
        first, *fields = begun.decode("latin-1").split("\r\n")
        status = first.split(" ")[1:2]
        headers = {name.title(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        return (int(status[0]), headers, rest) if status and status[0].isdecimal() else (0, {}, b"no answer")


def _may_try_again(status: int, headers: dict[str, str]) -> bool:
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
