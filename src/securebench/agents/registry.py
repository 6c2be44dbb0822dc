"""Look up versions and digests of packages in an npm registry, and download their archives.

Archives are requested at their usual paths on the registry's own host. URLs of archives in the registry's responses are
ignored, but redirects are followed. No credentials are sent.
"""

from __future__ import annotations

import base64
import os
import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.errors import ConfigError, InfrastructureError
from securebench.fs.home import home_directory
from securebench.http.address import parse_address, without_password
from securebench.http.client import HttpClient
from securebench.http.download import Download
from securebench.http.errors import AddressError, HttpError, MismatchError, StatusError
from securebench.http.timeouts import Deadline
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from securebench.http.address import Address
    from securebench.http.timeouts import Timeouts

REGISTRY: Final = "https://registry.npmjs.org"
"""The registry that is used unless another is configured."""
REGISTRY_VARIABLES: Final = ("SECUREBENCH_NPM_REGISTRY", "npm_config_registry", "NPM_CONFIG_REGISTRY")

_MAX_DOCUMENT: Final = 1024 * 1024
_MAX_ARCHIVE: Final = 1024 * 1024 * 1024
_MAX_SETTINGS: Final = 64 * 1024
_DENIED: Final = frozenset({401, 403})
_MISSING: Final = frozenset({404, 410})
_INTEGRITY: Final = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")
_OFFLINE: Final = (
    "to install without a registry, run 'npm pack PACKAGE@VERSION' on another machine, then "
    "'securebench agents install --from FILE.tgz' on this one"
)
_HINT: Final = (
    f"check the network, HTTPS_PROXY and SSL_CERT_FILE, or name another registry in {REGISTRY_VARIABLES[0]}; {_OFFLINE}"
)


class PackageRelease(NamedTuple):
    """An exact version of a package, and the digest of its archive: ``sha512-`` and base64."""

    version: str
    integrity: str


class NpmRegistry:
    """The registry at ``url``, by default the configured one. Unless it is on this machine, it must use TLS.

    Raises :class:`ConfigError` (``agent-unavailable``) for a URL that cannot be used. Methods raise
    :class:`InfrastructureError` (``agent-unavailable``) if the registry cannot be reached or its responses are invalid,
    and :class:`ConfigError` (``agent-unknown-version``) for a version that it does not have.
    """

    def __init__(self, url: str = "", timeouts: Timeouts | None = None) -> None:
        self._url = (url or configured()).rstrip("/")
        self._base = _address(self._url)
        self._timeouts = timeouts

    def __str__(self) -> str:
        return str(self._base)

    def release(self, package: str, version: str) -> PackageRelease:
        """Return the release of an exact version or of a tag.

        Also raises :class:`InfrastructureError` (``agent-integrity``) if the registry has no sha512 hash for it.
        """
        what = f"{package} {version}"
        with self._explained(what):
            address = self._at(f"{package.replace('/', '%2f')}/{version}")
            data, _ = HttpClient(Deadline(self._timeouts)).read(address, _MAX_DOCUMENT)
        try:
            value = decode_json(data.decode("utf-8"))[0]
        except (UnfitJsonError, UnicodeDecodeError):
            value = None
        dist = value.get("dist") if isinstance(value, dict) else None
        found = value.get("version") if isinstance(value, dict) else None
        if not isinstance(dist, dict) or not isinstance(found, str):
            raise self._unavailable("its response does not describe a package", what)
        hashes = str(dist.get("integrity", "")).split()
        integrity = next((text for text in hashes if _INTEGRITY.fullmatch(text)), None)
        if integrity is None:
            raise InfrastructureError(
                f"{self} has no sha512 hash of {what}, so the archive cannot be checked",
                code="agent-integrity",
                hint=f"set {REGISTRY_VARIABLES[0]} to a registry that has this hash; {_OFFLINE}",
            )
        return PackageRelease(found, integrity)

    @contextmanager
    def archive(self, package: str, release: PackageRelease) -> Iterator[Download]:
        """Yield the archive of an exact version as a download, which can be iterated over once.

        If the hash is wrong, the last step of the iteration fails, and the ``with`` block raises
        :class:`InfrastructureError` (``agent-integrity``).
        """
        name = package.rpartition("/")[2]
        with self._explained(f"{package} {release.version}"):
            if not _INTEGRITY.fullmatch(release.integrity):
                raise MismatchError(f"{release.integrity} is not a sha512 hash")
            digest = f"sha512:{base64.b64decode(release.integrity.removeprefix('sha512-')).hex()}"
            address = self._at(f"{package}/-/{name}-{release.version}.tgz")
            yield Download(HttpClient(Deadline(self._timeouts)), address, _MAX_ARCHIVE, digest=digest)

    def ask(self) -> None:
        """Check that the registry responds."""
        with self._explained():
            HttpClient(Deadline(self._timeouts)).get(self._at("")).close()

    def _at(self, path: str) -> Address:
        return replace(self._base, path=f"{self._base.path.rstrip('/')}/{path}")

    @contextmanager
    def _explained(self, what: str = "") -> Iterator[None]:
        """Convert HTTP errors to the errors that this class documents. ``what`` is the requested release."""
        try:
            yield
        except HttpError as error:
            raise self._error(error, what) from error

    def _error(self, error: HttpError, what: str) -> InfrastructureError | ConfigError:
        if isinstance(error, MismatchError):
            return InfrastructureError(
                f"the archive of {what} is not the expected file: {error}",
                code="agent-integrity",
                hint="the download was discarded; retry, and check any proxy between this machine and the registry",
            )
        if isinstance(error, StatusError) and error.status in _MISSING:
            return ConfigError(
                f"the npm registry {self} does not have {what}",
                code="agent-unknown-version",
                hint="check which versions the package has; a mirror may have fewer than the public registry",
            )
        if isinstance(error, StatusError) and error.status in _DENIED:
            return self._unavailable(f"{error}: the registry requires credentials, but SecureBench sends none", what)
        return self._unavailable(str(error), what)

    def _unavailable(self, why: str, what: str) -> InfrastructureError:
        problem = f"cannot provide {what}" if what else "is unavailable"
        return InfrastructureError(f"the npm registry {self} {problem}: {why}", code="agent-unavailable", hint=_HINT)


def configured(environ: Mapping[str, str] | None = None) -> str:
    """Return the URL of the registry named in the environment or the user's ``.npmrc``, or the public one."""
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
    try:
        return parse_address(url)
    except AddressError as error:
        raise ConfigError(
            f"cannot use the npm registry {without_password(url)}: {error}",
            code="agent-unavailable",
            hint=f"name another registry in {REGISTRY_VARIABLES[0]}, for example {REGISTRY}; {_OFFLINE}",
        ) from error
