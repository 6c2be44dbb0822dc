"""In-toto statements (v1): claims about files, which are identified by their digests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import rfc8785

from securebench.strict_input.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
TEST_RESULT: Final = "https://in-toto.io/attestation/test-result/v0.1"

_STATEMENT: Final = "https://in-toto.io/Statement/v1"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MAX_VALUES: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class Statement:
    """A claim about files.

    ``subjects`` maps their names to their sha256 (hex). ``predicate_type`` defines the keys of ``predicate``.
    """

    subjects: Mapping[str, str]
    predicate_type: str
    predicate: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        """Return the statement as RFC 8785 JSON."""
        return rfc8785.dumps(
            {
                "_type": _STATEMENT,
                "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in self.subjects.items()],
                "predicateType": self.predicate_type,
                "predicate": dict(self.predicate),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a statement. Raises ``ValueError`` unless it is exactly what :meth:`to_bytes` writes."""
        content, _ = decode_json(data.decode("utf-8"), _MAX_VALUES)
        match content:
            case {"subject": [_, *_] as subjects, "predicateType": str(kind), "predicate": dict(predicate)}:
                statement = cls(_digests(subjects), kind, predicate)
                if statement.to_bytes() == data:
                    return statement
        raise ValueError("the signed content is not an in-toto statement about files, or is not in canonical form")


def _digests(subjects: list[Any]) -> dict[str, str]:
    """Return the digests of the subjects. Invalid ones are left out: the statement is then rejected as noncanonical."""
    digests: dict[str, str] = {}
    for subject in subjects:
        match subject:
            case {"name": str(name), "digest": {"sha256": str(digest)}} if _SHA256.fullmatch(digest):
                digests[name] = digest
    return digests
