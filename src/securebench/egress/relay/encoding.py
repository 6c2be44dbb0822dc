"""Decompress answers. The relay asks for uncompressed ones, but some providers and proxies compress anyway."""

from __future__ import annotations

import importlib
import zlib
from typing import TYPE_CHECKING, Any, Final, Protocol

from securebench.egress.http_streams import PIECE
from securebench.egress.model import Trouble
from securebench.egress.relay.upstream import NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_EXPANSION: Final = 200
"""How many times larger than its compressed form an answer may be. A stream of events reaches about 50."""

FREE_BYTES: Final = 1024 * 1024
""":data:`MAX_EXPANSION` applies only to answers that have more than this many bytes after decompression."""

_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB_METHOD: Final = 8
_MAX_ZLIB: Final = 0x78


def _optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_BROTLI: Final = _optional("brotli")


class _Codec(Protocol):
    """Decompresses a stream. Raises an error of its library if the stream is invalid."""

    is_complete: bool

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what can be decompressed after adding ``data``, in pieces of bounded size."""


class _Inflate:
    """Gzip, zlib or raw deflate."""

    def __init__(self, encoding: str) -> None:
        self._is_gzip = encoding != "deflate"
        self._stream = zlib.decompressobj(_GZIP) if self._is_gzip else None
        self.is_complete = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:  # some servers leave out the header of zlib
            has_header = data[0] & 0x0F == _ZLIB_METHOD and data[0] <= _MAX_ZLIB
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
        while True:
            if self._stream.eof:
                if not data:
                    break
                if not self._is_gzip:
                    raise zlib.error("data after the end")
                self._stream = zlib.decompressobj(_GZIP)  # gzip may have several members
            piece = self._stream.decompress(data, PIECE)
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if piece:
                yield piece
            if not data and len(piece) < PIECE:
                break
        self.is_complete = self._stream.eof


class _Brotli:
    """Brotli, if the library is installed."""

    def __init__(self, _encoding: str) -> None:
        self._stream = _BROTLI.Decompressor()
        self.is_complete = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if piece := self._stream.process(data, output_buffer_limit=PIECE):
            yield piece
        while not self._stream.can_accept_more_data():
            if piece := self._stream.process(b"", output_buffer_limit=PIECE):
                yield piece
        self.is_complete = self._stream.is_finished()


_CODECS: Final[dict[str, Callable[[str], _Codec]]] = {
    "gzip": _Inflate,
    "deflate": _Inflate,
    **({"br": _Brotli} if _BROTLI else {}),
}
_ERRORS: Final = (zlib.error, *((_BROTLI.error,) if _BROTLI else ()))


class AnswerDecoder:
    """Decompresses the body of one answer, in bounded memory. ``trouble`` is reported for an invalid body.

    Raises :class:`NoAnswerError` if the encoding is not supported.
    """

    def __init__(self, headers: Iterable[tuple[bytes, bytes]], trouble: Trouble = Trouble.FAILED) -> None:
        values = [bytes(value).decode("latin-1") for name, value in headers if name == b"content-encoding"]
        listed = [one.strip().lower().removeprefix("x-") for value in values for one in value.split(",")]
        names = [name for name in listed if name != "identity"]
        self._trouble = trouble
        self._taken = self._given = 0
        self._codec: _Codec | None = None
        if names:
            if len(names) > 1 or names[0] not in _CODECS:
                install = ": install securebench[brotli]" if names == ["br"] else ""
                raise NoAnswerError(trouble, f"the provider's answer has an encoding that is not supported{install}")
            self._codec = _CODECS[names[0]](names[0])

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed data of the next piece. Raises :class:`NoAnswerError`."""
        if self._codec is None:
            yield data
            return
        self._taken += len(data)
        try:
            for piece in self._codec.pieces(data) if data else ():
                self._given += len(piece)
                if self._given > max(FREE_BYTES, self._taken * MAX_EXPANSION):
                    raise NoAnswerError(self._trouble, "the provider's compressed answer expands too much")
                yield piece
        except _ERRORS:
            raise NoAnswerError(self._trouble, "the provider's compressed answer is not valid") from None

    def finish(self) -> None:
        """Handle the end of the body. Raises :class:`NoAnswerError` if it is incomplete."""
        if self._codec is not None and self._taken and not self._codec.is_complete:
            raise NoAnswerError(self._trouble, "the provider's compressed answer is incomplete")
