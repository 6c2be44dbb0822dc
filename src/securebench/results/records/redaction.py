"""Redaction: remove hidden values, evaluation inputs and credentials from records and logs.

By field: the value of a key is removed if the key names a secret resource or an expected result.
By equality: a string in a verifier's metadata is removed if it equals a secret of any length that is not also in the
public lane. This is not done for what an agent reports: an agent may list the choices of a question, and the redacted
choice would be the answer.
By value: a secret string is found in any text in plain form, JSON-escaped, as a Python literal, and in base64, hex and
URL encoding; in upper or lower case; and with white space inserted (wrapped or split over lines).

Records stay readable: short values stay in texts, since an answer ``A`` must not blank every A. Values that are also
in the public lane stay, too: they are not secret, and blanking only the right one of four choices would reveal the
answer. Values that a family declares as structure (paths, directories, limits, policies) also stay. In a patch, only
the text of added lines is redacted, so that the patch still applies. Credentials are an exception: they are removed
from the whole patch.

Texts are untrusted: the time is linear in the length of a text, and logarithmic in the number of secrets.
"""

from __future__ import annotations

import base64
import json
import math
import re
import urllib.parse
from bisect import bisect_right
from copy import copy
from typing import TYPE_CHECKING, Final

from securebench.families.registry import is_structure, secret_strings, strings, structure_strings
from securebench.plurals import counted
from securebench.resources import REDACTED, Visibility
from securebench.results.records.patch_lines import added_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from securebench.resources import JsonValue
    from securebench.tasks import SecureBenchTask

MIN_VALUE: Final = 8
"""Minimum length, in characters other than white space, of a value that is searched for in texts."""

MIN_CREDENTIAL: Final = 4
"""Minimum length of a credential that is searched for, counted as for :data:`MIN_VALUE`.

It is smaller than :data:`MIN_VALUE`: a short secret value may be a word that readers need, but a credential is not.
"""

MIN_LINE: Final = 12
"""Minimum length of a line that is searched for, counted as for :data:`MIN_VALUE`.

It applies to the lines of a secret, and to the lines and quoted strings of a hidden file.
"""

CAP: Final = 64 * 1024
"""Default maximum characters of one text in a record."""

_PREFIX: Final = MIN_CREDENTIAL
_HEAD: Final = 256
"""How many characters of an encoded secret the binary search compares. Few encoded secrets are longer, and fewer share
a prefix of this length."""
_QUOTED: Final = re.compile(r"""(["'])((?:(?!\1)[^\\\n]|\\.)*)\1""")
_ESCAPED: Final = frozenset("\\\"'")
_BASE64_WRAP: Final = 3
_STABLE_LOWERCASE: Final = str.maketrans({"\u0130": "i", "\u03a3": "\u03c3", "\u03c2": "\u03c3"})
"""Letters whose lower case has another length (I with a dot) or depends on the next letter (sigma)."""

_URL: Final = {byte: urllib.parse.quote(bytes([byte]), safe="") for byte in range(256)}
"""The URL encoding of each byte.

Secrets can be as long as a test file. For them, ``urllib.parse.quote`` would be slower than all other encodings
together, so this table replaces it.
"""

_FIELDS: Final = frozenset(
    {"answer", "answers", "answer_key", "gold", "reference", "canonical_solution", "ground_truth"}
)
_KEPT_FIELDS: Final = frozenset(
    {"harness", "verifier", "version", "phase", "reason", "rule", "isolation", "assurance", "kind"}
)
"""Fields whose values are fixed words of SecureBench. They are kept even if an answer is the same word."""


class Redactor:
    """Removes the secrets of one task from texts and JSON values. Immutable and thread safe.

    ``public`` are the public strings, joined by NUL characters. ``credentials`` are removed even if they also occur in
    ``public``. ``fields`` are the names of secret resources. JSON fields with these names lose their values.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        *,
        public: str = "",
        credentials: Iterable[str] = (),
        fields: Iterable[str] = (),
    ) -> None:
        found = {secret for secret in secrets if secret.strip()}
        shown = self._shown = _squeeze(public)
        self._exact = found - set(public.split("\0"))
        self._fields = _FIELDS | {name.lower() for name in fields}
        long = [secret for secret in found if len(_squeeze(secret)) >= MIN_VALUE and _squeeze(secret) not in shown]
        keys = [key for key in credentials if len(_squeeze(key)) >= MIN_CREDENTIAL]
        self._keys = _Forms({form for key in keys for form in _encodings(key)})
        self._whole = _Forms({form for secret in long for form in _encodings(secret)}, also=self._keys)
        lines = {line for secret in long for line in _lines_of(secret) if len(_squeeze(line)) >= MIN_LINE}
        hidden_lines = (line for line in lines if _squeeze(line) not in shown)
        self._lines = _Forms({form for line in hidden_lines for form in _escapes(line)}, also=self._whole)

    @classmethod
    def for_task(cls, task: SecureBenchTask, credentials: Iterable[str] = ()) -> Redactor:
        """Return the redactor of a task.

        Every string outside the public lane is secret, however deeply nested. The exceptions are strings that the
        family declares as structure (such as a working directory), references to files, and single words of a command.
        """
        secret = list(secret_strings(task))
        public = [resource.value for resource in task.resources if resource.visibility is Visibility.PUBLIC]
        shown = [*structure_strings(task), *(text for value in public for text in strings(value))]
        return cls(
            (text for _, text in secret),
            public="\0".join((task.id, task.benchmark_id, *shown)),
            credentials=credentials,
            fields=(r.name for r in task.resources.secrets() if not is_structure(task.task_type, r)),
        )

    def with_files(self, hidden: Iterable[str], public: Iterable[str]) -> Redactor:
        """Return a redactor whose option ``lines`` also removes lines and quoted strings of the ``hidden`` files.

        Text that also occurs in the ``public`` files stays. Arguments are the contents of text files.
        """
        known = {_squeeze(piece) for text in public for piece in _pieces(text)}
        pieces = {_squeeze(piece): piece for text in hidden for piece in _pieces(text)}
        secret = (piece for key, piece in pieces.items() if key not in known and key not in self._shown)
        forms = {form for piece in secret for form in _escapes(piece)}
        redactor = copy(self)
        redactor._lines = _Forms(forms, also=self._lines)  # noqa: SLF001 - a copy of this very object
        return redactor

    def text(self, text: str, *, cap: int = CAP, lines: bool = False) -> str:
        """Return ``text`` without secrets, clipped to about ``cap`` characters.

        ``lines`` also removes single lines of a secret: use it for output of programs that could read the secret.
        """
        return (self._lines if lines else self._whole).redact(text, cap)

    def patch(self, text: str, *, cap: int) -> str:
        """Return a patch that SecureBench rendered, without the secrets in its added lines.

        File names stay. Context lines and removed lines stay too, because they come from the repository. So the patch
        still applies. Files that do not fit into ``cap`` characters are omitted, and a last line says so.

        Credentials are the exception: they are removed everywhere, including file names. A patch with a credential
        outside of its added lines no longer applies.
        """
        lines = text.split("\n")
        for numbers in added_lines(lines):
            added = "\n".join(lines[number][1:] for number in numbers)
            for number, line in zip(numbers, self._whole.redact_lines(added), strict=True):
                lines[number] = "+" + line
        shown = _whole_files("\n".join(lines), cap)
        return self._keys.redact(shown, len(shown))

    def value(self, value: JsonValue, *, lines: bool = False) -> JsonValue:
        """Return a JSON value without the values of secret fields, and without secrets in its texts.

        ``lines`` also removes single lines of a secret, and each string that equals a secret, however short.
        Infinity and NaN become text.
        """
        if isinstance(value, str):
            return REDACTED if lines and value in self._exact else self.text(value, lines=lines)
        if isinstance(value, dict):
            return self.mapping(value, lines=lines)
        if isinstance(value, list | tuple):
            return [self.value(item, lines=lines) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return value

    def mapping(self, value: Mapping[str, JsonValue], *, lines: bool = False) -> dict[str, JsonValue]:
        """Return a JSON object without secrets, like :meth:`value`."""
        return {
            self.text(key, lines=lines): REDACTED if self._names_secret(key) else self._item(key, item, lines=lines)
            for key, item in value.items()
        }

    def _names_secret(self, key: str) -> bool:
        name = key.lower()
        return name in self._fields or name.startswith("expected")

    def _item(self, key: str, item: JsonValue, *, lines: bool) -> JsonValue:
        return item if key in _KEPT_FIELDS and isinstance(item, str) else self.value(item, lines=lines)


class _Forms:
    """The encoded forms of all secrets, sorted. One pass over a text finds all of them."""

    def __init__(self, forms: Iterable[str], also: _Forms | None = None) -> None:
        squeezed = frozenset(form for form in map(_squeeze, forms) if len(form) >= _PREFIX)
        self.all: frozenset[str] = squeezed | also.all if also else squeezed
        self._longest = max(map(len, self.all), default=0)
        self._prefixes = frozenset(form[:_PREFIX] for form in self.all)
        self._by_head: dict[str, list[str]] = {}
        for form in sorted(self.all, key=len, reverse=True):
            self._by_head.setdefault(form[:_HEAD], []).append(form)
        self._heads = sorted(self._by_head)
        self._shorter = _longest_prefixes(self._heads)

    def redact(self, text: str, cap: int) -> str:
        """Return about the first ``cap`` characters of ``text``, with every form in them replaced by ``<redacted>``."""
        window = text[: cap + 2 * self._longest]
        pieces, position = [], 0
        for start, end in self._spans(window):
            if start >= cap:
                break
            pieces += [window[position:start], REDACTED]
            position = end
        pieces.append(window[position:cap])
        left_out = len(text) - max(position, cap)
        return "".join(pieces) + (f"\n[clipped: {counted(left_out, 'more character')}]" if left_out > 0 else "")

    def redact_lines(self, text: str) -> list[str]:
        """Return the lines of ``text``, each redacted. A form that spans several lines is replaced on each of them."""
        spans = list(self._spans(text))
        lines, start, passed = [], 0, 0
        for line in text.split("\n"):
            pieces, position = [], 0
            while passed < len(spans) and spans[passed][1] <= start:
                passed += 1
            for first, last in _from(spans, passed, start + len(line)):
                begin, end = max(first - start, 0), min(last - start, len(line))
                if begin < end and line[begin:end].strip():
                    pieces += [line[position:begin], REDACTED]
                    position = end
            lines.append("".join([*pieces, line[position:]]))
            start += len(line) + 1
        return lines

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each form in ``text``, in order and without overlap."""
        if not self.all:
            return
        squeezed = _squeeze(text)
        merged: list[list[int]] = []
        for start, end in self._matches(squeezed):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        if not merged:
            return
        to_text = _Offsets(text)
        for start, end in merged:
            yield to_text(start), to_text(end - 1) + 1

    def _matches(self, squeezed: str) -> Iterator[tuple[int, int]]:
        for start in range(len(squeezed) - _PREFIX + 1):
            if squeezed[start : start + _PREFIX] in self._prefixes and (form := self._longest_at(squeezed, start)):
                yield start, start + len(form)

    def _longest_at(self, squeezed: str, start: int) -> str:
        """Return the longest form that starts at ``start``, or an empty string.

        The head of a form is its first :data:`_HEAD` characters, or the whole form if it is shorter.
        """
        # The text may begin with several heads. In the sorted list, all heads between such a head and the text begin
        # with it, too. _shorter leads from a head to its longest proper prefix. So the way from the last head that is
        # not greater than the text passes all heads with which the text begins, the longest first.
        window = squeezed[start : start + _HEAD]
        at = bisect_right(self._heads, window) - 1
        while at >= 0:
            head = self._heads[at]
            if window.startswith(head):
                for form in self._by_head[head]:
                    if squeezed.startswith(form, start):
                        return form
            at = self._shorter[at]
        return ""


def _from(spans: list[tuple[int, int]], number: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans from the index ``number`` on, as long as they start before ``end``."""
    while number < len(spans) and spans[number][0] < end:
        yield spans[number]
        number += 1


def _longest_prefixes(heads: list[str]) -> list[int]:
    """Return for each of the sorted ``heads`` the index of its longest proper prefix among them, or -1."""
    found: list[int] = []
    for number, head in enumerate(heads):
        at = number - 1
        while at >= 0 and not head.startswith(heads[at]):
            at = found[at]
        found.append(at)
    return found


def _whole_files(patch: str, cap: int) -> str:
    """Return the first files of a patch that fit completely into ``cap`` characters."""
    if len(patch) <= cap:
        return patch
    end = patch.rfind("\ndiff --git ", 0, cap) + 1
    return f"{patch[:end]}[clipped: {counted(len(patch) - end, 'more character')}]"


class _Offsets:
    """Converts an offset in the squeezed text to the offset in the original text."""

    def __init__(self, text: str) -> None:
        self._text_starts: list[int] = []
        self._squeezed_starts: list[int] = []
        squeezed = 0
        for run in re.finditer(r"\S+", text):
            self._text_starts.append(run.start())
            self._squeezed_starts.append(squeezed)
            squeezed += run.end() - run.start()

    def __call__(self, offset: int) -> int:
        run = bisect_right(self._squeezed_starts, offset) - 1
        return self._text_starts[run] + offset - self._squeezed_starts[run]


def _squeeze(text: str) -> str:
    """Return ``text`` without white space and in lower case.

    Each remaining character becomes exactly one character, so :class:`_Offsets` can convert offsets.
    """
    squeezed = "".join(text.split())
    return squeezed.lower() if squeezed.isascii() else squeezed.translate(_STABLE_LOWERCASE).lower()


def _lines_of(text: str) -> Iterator[str]:
    """Yield the lines of ``text``, without the ``+`` of a patch's added lines."""
    return (line.removeprefix("+") for line in text.splitlines())


def _pieces(text: str) -> Iterator[str]:
    """Yield the lines and quoted strings of ``text`` that have at least :data:`MIN_LINE` characters.

    Those longer than :data:`_HEAD` are split into parts.
    """
    for whole in (*_lines_of(text), *(quoted for _, quoted in _QUOTED.findall(text))):
        if MIN_LINE <= len(squeezed := "".join(whole.split())) <= _HEAD:
            yield whole
        else:
            yield from (squeezed[at : at + _HEAD] for at in range(0, len(squeezed) - MIN_LINE + 1, _HEAD))


def _escapes(text: str) -> Iterator[str]:
    """Yield ``text`` in plain form, as a JSON string (also inside another JSON string), and as a Python literal."""
    yield text
    if text.isascii() and text.isprintable() and not _ESCAPED.intersection(text):
        return
    for escaped in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        yield escaped
        yield json.dumps(escaped, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    yield ascii(text)[1:-1]


def _encodings(text: str) -> Iterator[str]:
    """Yield every form of ``text`` that is searched for."""
    yield from _escapes(text)
    if len(text) < MIN_VALUE:
        return
    data = text.encode("utf-8", "surrogatepass")
    yield data.hex()
    quoted = data.decode("latin1").translate(_URL)
    yield quoted
    yield quoted.replace("%2F", "/")
    yield quoted.replace("%20", "+")
    for shift in range(_BASE64_WRAP):
        core = _base64_core(data, shift)
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _base64_core(data: bytes, shift: int) -> str:
    """Return the base64 characters that depend only on ``data``, if it starts ``shift`` bytes into a 3-byte group."""
    encoded = base64.b64encode(b"\0" * shift + data).decode("ascii").rstrip("=")
    undecided = 1 if (shift + len(data)) % _BASE64_WRAP else 0
    first = (0, 2, 3)[shift]
    return encoded[first : len(encoded) - undecided]
