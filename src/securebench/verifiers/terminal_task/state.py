"""Read and compare the state that a checker found and the expected state. Both are plain data."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from securebench.benchmark_pack.assets import AssetDigest
from securebench.errors import MaterializationError
from securebench.fs.safe_open import TreeRefusedError
from securebench.limits import MIB
from securebench.sandboxes.base import Stream
from securebench.strict_input.json_text import UnfitJsonError, decode_json
from securebench.workspaces.materialization import asset_changed
from securebench.workspaces.snapshot import read_file

if TYPE_CHECKING:
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Chunk
    from securebench.tasks import AssetRoot

MAX_STATE_BYTES: Final = MIB
"""The longest line that is accepted as a state, in bytes."""

_WHITE_SPACE: Final = 4096
"""The number of bytes that are kept beyond the longest state: room for white space around its line."""


class LastLine:
    """Receives chunks of output and keeps the end of stdout, where the last line that is not empty is the state."""

    def __init__(self) -> None:
        self._end = bytearray()
        self._is_cut = False
        """Whether the beginning of the output was dropped."""

    def __call__(self, chunk: Chunk) -> None:
        """Add a chunk."""
        stream, data = chunk
        if stream is Stream.STDOUT:
            self._end += data
            if len(self._end) > 2 * MAX_STATE_BYTES + _WHITE_SPACE:
                del self._end[: -MAX_STATE_BYTES - _WHITE_SPACE]
                self._is_cut = True

    def state(self) -> JsonValue:
        """Return the JSON value of the last line. Raises ``ValueError`` if it is not valid."""
        _, line_end, line = self._end.rstrip().rpartition(b"\n")
        if len(line) > MAX_STATE_BYTES or (self._is_cut and not line_end):  # its beginning may have been dropped
            raise ValueError("the last line is too long")
        return decode_json(line.decode("utf-8"))[0]


def same_state(one: JsonValue, other: JsonValue) -> bool:
    """Return whether two JSON values are equal. Numbers are compared by value (1 equals 1.0); ``true`` is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_state(item, other[key]) for key, item in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_state, one, other))
    if _is_number(one) and _is_number(other):
        return one == other
    return type(one) is type(other) and one == other


def read_expected_file(root: AssetRoot, path: str) -> JsonValue:
    """Return the JSON value in the file ``path`` below an asset root.

    Raises :class:`MaterializationError` if the file cannot be read, has changed, or is not valid JSON.
    """
    try:
        data = read_file(root.directory, path, MAX_STATE_BYTES)
        _require_unchanged(root, path, data)
        return decode_json(data.decode("utf-8"))[0]
    except (TreeRefusedError, UnfitJsonError, UnicodeDecodeError):
        raise MaterializationError(
            "the file of 'expected_state' cannot be read as JSON",
            code="asset-unsafe",
            hint=f"use a single JSON value in UTF-8, of at most {MAX_STATE_BYTES} bytes, without NaN or duplicate keys",
        ) from None


def _require_unchanged(root: AssetRoot, path: str, data: bytes) -> None:
    pack_path = f"{root.name}/{path}"
    known, found = root.digests.get(pack_path), []
    for executable in (False, True):  # the mode is part of the digest but does not matter here
        digest = AssetDigest(pack_path)
        digest.file(hashlib.sha256(data).hexdigest(), executable=executable)
        found.append(digest.hexdigest())
    if known is not None and known not in found:
        raise asset_changed(path)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
