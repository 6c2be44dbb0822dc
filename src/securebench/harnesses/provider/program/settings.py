"""The settings that change what an agent program does. Papers report them, so a run records them."""

from __future__ import annotations

import hashlib
import json
import shlex
from typing import TYPE_CHECKING, Final

from securebench.agents.declaration import SETTINGS
from securebench.errors import ConfigError
from securebench.strict_input.files import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.agents.declaration import AgentDeclaration
    from securebench.resources import JsonValue
    from securebench.tester_config import ProviderSettings

_MAX_BYTES: Final = 120_000
"""Maximum bytes of a text that is an argument. Linux limits an argument to 128 KiB."""

_FILES: Final = ("system_prompt", "instructions")


class AgentSettings:
    """The settings in a configuration, with the texts of their files.

    Raises :class:`ConfigError`: ``setting-unsupported`` for a setting that the program does not have, and the errors of
    a file that cannot be read or is too large.
    """

    def __init__(self, name: str, declared: AgentDeclaration, config: ProviderSettings) -> None:
        self._config = config
        self._texts = {kind: text for kind in _FILES if (text := self._text(kind)) is not None}
        values = {kind: getattr(config, kind) for kind in SETTINGS if kind not in _FILES}
        self._values = {kind: value for kind, value in values.items() if value}
        self.given = frozenset({*self._texts, *self._values})
        """The names of the settings that the configuration has."""
        for kind in sorted(self.given - declared.supported):
            key = f"{kind}_file" if kind in _FILES else kind
            known = ", ".join(sorted(declared.supported)) or "no settings that are passed to its program"
            raise ConfigError(
                f"harness.config.{key}: the declaration of {name} does not say how to set it",
                code="setting-unsupported",
                hint=f"remove it; {name} supports {known}",
            )

    @property
    def extra_arguments(self) -> tuple[str, ...]:
        """The arguments that replace the placeholder ``{extra_arguments}``."""
        return self._config.extra_arguments

    def placeholders(self) -> dict[str, str]:
        """Return the values of the placeholders. Names ending in ``_toml`` or ``_json`` have values in that format."""
        servers = {
            name: {"command": server.command[0], "args": list(server.command[1:]), "env": dict(server.environment)}
            for name, server in self._config.mcp_servers.items()
        }
        texts = {name: self._texts.get(name, "") for name in _FILES}
        return {
            "effort": self._config.effort or "",
            "max_turns": str(self._config.max_turns or ""),
            "allowed_tools": ",".join(self._config.allowed_tools),
            "extra_arguments": shlex.join(self.extra_arguments),
            **texts,
            **{f"{name}_toml": _toml(text) for name, text in texts.items()},
            "mcp_servers_json": json.dumps({"mcpServers": servers}),
            "mcp_servers_toml": _toml(servers),
        }

    def identity(self) -> dict[str, JsonValue]:
        """Return the settings for the run's identity.

        Each file is represented only by its size and digest, and each variable of an MCP server only by its name.
        """
        given: dict[str, JsonValue] = {
            kind: list(value) if isinstance(value, tuple) else value
            for kind, value in self._values.items()
            if kind != "mcp_servers"
        }
        servers: dict[str, JsonValue] = {
            name: {"command": [*server.command], "environment": [*sorted(server.environment)]}
            for name, server in self._config.mcp_servers.items()
        }
        texts: dict[str, JsonValue] = {
            kind: {"characters": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
            for kind, text in self._texts.items()
        }
        settings = {**given, **texts, **({"mcp_servers": servers} if servers else {})}
        return {"settings": settings} if settings else {}

    def _text(self, kind: str) -> str | None:
        path = getattr(self._config, f"{kind}_file")
        if path is None:
            return None
        text, _ = read_text(path, f"{kind.replace('_', ' ')} file", _MAX_BYTES, follow=True)
        if len(_toml(text).encode()) > _MAX_BYTES:
            message = f"{path} is longer than {_MAX_BYTES} bytes when it is escaped for TOML"
            raise ConfigError(message, code="file-too-large")
        return text


def _toml(value: str | list[str] | Mapping[str, object]) -> str:
    """Return ``value`` as TOML on one line. JSON strings are valid in TOML, except that DEL must be escaped."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{','.join(map(_toml, value))}]"
    return "{" + ",".join(f"{_toml(name)}={_toml(item)}" for name, item in value.items()) + "}"  # type: ignore[arg-type]
