"""The npm registry: which version a tag means, what a package's archive must be, and the archive itself.

Nothing that a registry says decides where something is fetched from: archives lie where registries have them by
convention. No credentials are sent. Connections are those of :mod:`securebench.images.registry.wire`.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.errors import ConfigError, ImageError, InfrastructureError
from securebench.fs.home import home_directory
from securebench.images.registry import wire
from securebench.images.registry.address import Address, follow
from securebench.images.registry.client import MAX_REDIRECTS
from securebench.images.registry.patience import Deadline, Timeouts
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

REGISTRY: Final = "https://registry.npmjs.org"
"""Unless another is configured."""
REGISTRY_VARIABLES: Final = ("SECUREBENCH_NPM_REGISTRY", "npm_config_registry", "NPM_CONFIG_REGISTRY")

_MAX_DOCUMENT: Final = 1024 * 1024
_MAX_ARCHIVE: Final = 1024 * 1024 * 1024
_MAX_SETTINGS: Final = 64 * 1024
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})
_DENIED: Final = frozenset({401, 403})
_MISSING: Final = frozenset({404, 410})
_GOOD: Final = frozenset({200, 206})
_INTEGRITY: Final = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")
_HERE: Final = Address("http", "127.0.0.1", 80, "/")
_OFFLINE: Final = (
    "without a registry: 'securebench agents install --from FILE.tgz', fetched elsewhere by 'npm pack PACKAGE@VERSION'"
)
_HINT: Final = (
    f"check the network, HTTPS_PROXY and SSL_CERT_FILE, or name another registry as {REGISTRY_VARIABLES[0]}; {_OFFLINE}"
)


class PackageRelease(NamedTuple):
    """An exact version of a package, and what its archive must be: ``sha512-`` and base64."""

    version: str
    integrity: str


class _BusyError(Exception):
    """The registry cannot answer now."""


class NpmRegistry:
    """The registry at ``url``, by default the one that npm is configured for. TLS, or on this machine.

    Methods raise :class:`InfrastructureError` (``agent-unavailable``) if it cannot be reached or does not answer as a
    registry does, and :class:`ConfigError` (``agent-unknown-version``) for what it has not.
    """

    def __init__(self, url: str = "", timeouts: Timeouts | None = None) -> None:
        self._url = (url or configured()).rstrip("/")
        self._base = _address(self._url)
        self._timeouts = timeouts or Timeouts()

    def __str__(self) -> str:
        return str(self._base)

    def release(self, package: str, version: str) -> PackageRelease:
        """Return what ``version``, exact or a tag, is. Raises ``agent-integrity``, too, where it has no sha512."""
        path = f"{package.replace('/', '%2f')}/{version}"
        data = b"".join(Download(self, path, f"{package} {version}", Deadline(self._timeouts), _MAX_DOCUMENT))
        try:
            value = decode_json(data.decode("utf-8"))[0]
        except (UnfitJsonError, UnicodeDecodeError):
            value = None
        dist = value.get("dist") if isinstance(value, dict) else None
        found = value.get("version") if isinstance(value, dict) else None
        if not isinstance(dist, dict) or not isinstance(found, str):
            raise self.unavailable("it does not answer as a registry of packages does", f"{package} {version}")
        hashes = str(dist.get("integrity", "")).split()
        integrity = next((text for text in hashes if _INTEGRITY.fullmatch(text)), None)
        if integrity is None:
            raise InfrastructureError(
                f"{self} has no sha512 of {package} {version}: nothing can be checked against it",
                code="agent-integrity",
                hint=_HINT,
            )
        return PackageRelease(found, integrity)

    def archive(self, package: str, version: str) -> Download:
        """Return the archive of an exact version, to be iterated over once. It is not checked against anything."""
        path = f"{package}/-/{package.rpartition('/')[2]}-{version}.tgz"
        return Download(self, path, f"{package} {version}", Deadline(self._timeouts), _MAX_ARCHIVE)

    def ask(self) -> None:
        """See whether it answers at all."""
        with self.explaining():
            try:
                wire.get(self._at(""), {"Connection": "close"}, Deadline(self._timeouts)).close()
            except wire.BROKEN as error:
                raise self.unavailable(str(error) or type(error).__name__) from error

    def unavailable(self, why: str, what: str = "") -> InfrastructureError:
        """Return the error for a registry that does not serve, or not ``what`` was asked for."""
        lacking = f" gives no {what}" if what else " does not serve"
        return InfrastructureError(f"the npm registry {self}{lacking}: {why}", code="agent-unavailable", hint=_HINT)

    def open(self, path: str, what: str, deadline: Deadline, start: int) -> wire.Answer:
        """Return the answer about ``path``, from the byte ``start`` on. Raises ``_BusyError`` and ``wire.BROKEN``."""
        headers = {"Connection": "close"} | ({"Range": f"bytes={start}-"} if start else {})
        address = self._at(path)
        for _ in range(MAX_REDIRECTS + 1):
            answer = wire.get(address, headers, deadline)
            if answer.status not in _REDIRECTS:
                return self._judged(answer, what)
            answer.close()
            address = follow(answer.header("Location"), address)
        raise self.unavailable(f"it redirects more than {MAX_REDIRECTS} times", what)

    @contextmanager
    def explaining(self, what: str = "") -> Iterator[None]:
        """Give what the connections raise the type that this registry's errors have."""
        try:
            yield
        except ImageError as error:
            raise self.unavailable(error.message, what) from None

    def _at(self, path: str) -> Address:
        return replace(self._base, path=f"{self._base.path.rstrip('/')}/{path}")

    def _judged(self, answer: wire.Answer, what: str) -> wire.Answer:
        if answer.status in _GOOD:
            return answer
        answer.close()
        if answer.status in _TRANSIENT:
            raise _BusyError(f"it answers {answer.status}")
        if answer.status in _MISSING:
            raise ConfigError(
                f"the npm registry {self} has no {what}",
                code="agent-unknown-version",
                hint="look for the version among those of the package; a mirror may have fewer than the registry",
            )
        if answer.status in _DENIED:
            raise self.unavailable(f"it answers {answer.status}: it wants credentials, and none are sent", what)
        raise self.unavailable(f"it answers {answer.status}", what)


class Download:
    """Something of a registry's, in pieces. ``size`` is how many bytes it has, 0 before the first and if unsaid.

    A connection that breaks is made again, for what is left.
    """

    def __init__(self, registry: NpmRegistry, path: str, what: str, deadline: Deadline, limit: int) -> None:
        self._registry = registry
        self._path = path
        self._what = what
        self._deadline = deadline
        self._limit = limit
        self._received = 0
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        tries = 0
        with self._registry.explaining(self._what):
            while True:
                before = self._received
                try:
                    yield from self._pieces()
                    if self._received >= self.size:
                        return
                    trouble: Exception = ConnectionError(f"it hung up after {self._received} of {self.size} bytes")
                except (_BusyError, *wire.BROKEN) as error:
                    trouble = error
                tries = 1 if self._received > before else tries + 1
                self._recover(trouble, tries)

    def _pieces(self) -> Iterator[bytes]:
        with self._registry.open(self._path, self._what, self._deadline, self._received) as answer:
            skip = 0 if answer.status == HTTPStatus.PARTIAL_CONTENT else self._received
            if not self._received:
                self.size = _length(answer.header("Content-Length"))
            elif not skip and not answer.header("Content-Range").startswith(f"bytes {self._received}-"):
                raise self._registry.unavailable("it gives another part than it was asked for", self._what)
            for piece in answer.pieces():
                fresh = piece[skip:]
                skip = max(0, skip - len(piece))
                self._received += len(fresh)
                if max(self._received, self.size) > self._limit:
                    raise self._registry.unavailable(f"it has more than {self._limit} bytes", self._what)
                yield fresh

    def _recover(self, trouble: Exception, tries: int) -> None:
        timeouts = self._deadline.timeouts
        if tries >= timeouts.attempts or (not self._received and not isinstance(trouble, _BusyError)):
            raise self._registry.unavailable(str(trouble) or type(trouble).__name__, self._what) from trouble
        self._deadline.wait(min(timeouts.pause * 2 ** (tries - 1), timeouts.longest_pause))


def configured(environ: Mapping[str, str] | None = None) -> str:
    """Return the registry that the environment or the user's ``.npmrc`` names, or the public one."""
    environ = os.environ if environ is None else environ
    named = next((environ[name] for name in REGISTRY_VARIABLES if environ.get(name)), "")
    return named or _in_settings(home_directory(environ) / ".npmrc") or REGISTRY


def _in_settings(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_SETTINGS)
    except OSError:
        return ""
    found = re.findall(r"(?m)^[ \t]*registry[ \t]*=[ \t]*[\"']?([^\s\"']+)", text)
    return found[-1] if found else ""


def _address(url: str) -> Address:
    if url.startswith(("https://", "http://")):
        try:
            return follow(url, _HERE)
        except ImageError:
            pass
    shown = re.sub(r"(?<=://)[^/@]*@", "", url)
    raise ConfigError(
        f"the npm registry {shown} cannot be used: TLS without credentials, or plain HTTP on this machine",
        code="agent-unavailable",
        hint=f"name another as {REGISTRY_VARIABLES[0]}, for example {REGISTRY}; {_OFFLINE}",
    )


def _length(header: str) -> int:
    return int(header) if header.isascii() and header.isdigit() else 0
