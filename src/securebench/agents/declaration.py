"""The file ``NAME.yaml`` that declares an agent program: where it comes from, how it runs, and what it reports.

A program is an npm package, packages from PyPI, or an archive. If it needs Node or Python, SecureBench mounts that too,
so the image of a task needs neither.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self, TypeAlias, TypeVar, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from securebench import plugins
from securebench.families.fields import Argument, Identifier
from securebench.pack_paths import relative_path_fault
from securebench.plugins import ExtensionKind
from securebench.strict_input.faults import Problems, did_you_mean
from securebench.strict_input.files import read_text
from securebench.strict_input.models import WireModel, fit, matching, refusal
from securebench.strict_input.yaml_text import MAX_YAML_BYTES, parse_yaml
from securebench.tester_config.fields import Maybe, Model, ResolvedPath, Variable

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION: Final = "0.1"

INTEGRITY: Final = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")
"""The form of an archive's digest, as npm writes it."""

PLACEHOLDERS: Final = (
    *("model", "prompt", "base_url", "root_url", "api_key", "api_key_env", "home", "program"),
    *("idle_timeout_ms", "answer_timeout_ms", "task_file"),
    *("effort", "max_turns", "allowed_tools", "mcp_servers_json", "mcp_servers_toml"),
    *("system_prompt", "system_prompt_toml", "instructions", "instructions_toml"),
    "extra_arguments",
)
"""The names of all placeholders in declarations, such as ``model`` for ``{model}``."""

_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")
_VALUE_FORM: Final = re.compile("_(?:json|toml)$")
_NOT_IN_FILES: Final = ("prompt", "effort", "max_turns", "allowed_tools", "extra_arguments")
"""The :data:`PLACEHOLDERS` that the contents of ``files`` must not have."""
_PACKAGE: Final = re.compile(r"(?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*", re.IGNORECASE)
_VERSION: Final = re.compile(r"[0-9][0-9A-Za-z.-]{0,39}")
_SUFFIX: Final = re.compile(r"-[a-z0-9-]{1,40}")
_MODULE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_EVENT_PATH: Final = re.compile(r"(?:[\w-]+|\*)(?:\.(?:[\w-]+|\*))*", re.ASCII)

Platform: TypeAlias = Literal["linux-x64", "linux-arm64", "linux-x64-musl", "linux-arm64-musl"]
Runtime: TypeAlias = Literal["node", "python"]
Dialect: TypeAlias = Literal["responses", "messages", "chat_completions", "gemini"]
SettingName: TypeAlias = Literal["effort", "system_prompt", "instructions", "max_turns", "allowed_tools", "mcp_servers"]
Condition: TypeAlias = Literal["provider_tools", "no_provider_tools", "exact_model", SettingName]
"""A condition on the run.

``provider_tools``: provider tools are on. ``no_provider_tools``: they are off. ``exact_model``: the model, without a
suffix in brackets, is not one of ``aliases``. The name of a setting: the setting is given.
"""
SETTINGS: Final = (*get_args(SettingName), "extra_arguments")
"""The settings that a declaration can pass to its program.

A program supports a setting only if its declaration passes the setting.
"""
EXTRA_ARGUMENTS: Final = "{extra_arguments}"
"""An argument that consists of this placeholder is replaced with the tester's ``extra_arguments``."""
EventKind: TypeAlias = Literal[
    "message", "thought", "command", "result", "error", "warning", "usage", "gave_up", "refused"
]


def fill(template: str, values: dict[str, str]) -> str:
    """Return ``template`` with its placeholders replaced by their ``values``. Other braces are kept."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


def _template(text: str) -> str:
    for name in _PLACEHOLDER.findall(text):
        if name not in PLACEHOLDERS:
            raise refusal("field-value", f"has the unknown placeholder {{{name}}}", did_you_mean(name, PLACEHOLDERS))
    return text


def _require_condition(text: str, condition: str = "") -> str:
    """Return ``text``. Refuse placeholders that need a condition other than ``condition``.

    :data:`EXTRA_ARGUMENTS` is always refused, because :func:`_argument` handles the only place where it is allowed.
    """
    for name in _PLACEHOLDER.findall(text):
        setting = _VALUE_FORM.sub("", name)
        if name == EXTRA_ARGUMENTS.strip("{}"):
            hint = "write it as a separate argument that is not part of an item with 'when'"
            raise refusal("field-value", f"uses {EXTRA_ARGUMENTS} where it is not available", hint)
        if setting in SETTINGS and setting != condition:
            hint = f"move it into an item with 'when: {setting}', which applies only if the setting is given"
            raise refusal("field-value", f"has {{{name}}} without the condition 'when: {setting}'", hint)
    return text


def _plain(text: str) -> str:
    return _require_condition(text)


def _argument(text: str) -> str:
    return text if text == EXTRA_ARGUMENTS else _require_condition(text)


def _file(text: str) -> str:
    """Return ``text``. Refuse the placeholders that are only for arguments and variables."""
    for name in _PLACEHOLDER.findall(text):
        if name in _NOT_IN_FILES:
            hint = "use it in an argument or a variable"
            raise refusal("field-value", f"uses {{{name}}}, which is not available in files", hint)
    return text


def _relative(path: str) -> str:
    if fault := relative_path_fault(path):
        raise refusal("path-unsafe", fault, "use a path in the package or, for 'files', in the program's home")
    return path


def _regular_expression(text: str) -> str:
    try:
        is_usable = re.compile(text).groups == 1
    except re.error:
        is_usable = False
    if not is_usable:
        raise refusal("field-value", "is not a regular expression with one group", r"for example 'my-agent (\S+)'")
    return text


def _parser(name: str) -> str:
    if not plugins.is_known(ExtensionKind.EVENT_PARSER, name):
        known = plugins.names(ExtensionKind.EVENT_PARSER)
        raise refusal("field-value", "is not the name of an event parser", did_you_mean(name, known))
    return name


def _schema_version(version: object) -> object:
    if version != SCHEMA_VERSION:
        hint = f'write schema_version: "{SCHEMA_VERSION}", in quotes'
        raise refusal("schema-version", "is not a supported version", hint)
    return version


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


_List: Final = BeforeValidator(_tuple)
Template: TypeAlias = Annotated[Argument, AfterValidator(_template)]
Integrity: TypeAlias = Annotated[str, matching(INTEGRITY, "'sha512-' and 64 bytes in base64")]
RelativePath: TypeAlias = Annotated[str, AfterValidator(_relative)]
EventPath: TypeAlias = Annotated[str, matching(_EVENT_PATH, "a path such as message.content.*.text")]


class PlatformPackage(WireModel):
    """The npm package for one platform.

    ``package`` is its name, by default that of the main package. Its version is the program's version with ``suffix``
    appended. ``interpreter`` is the loader that an image must have, empty for a static program.
    """

    package: Maybe[Annotated[str, matching(_PACKAGE, "the name of an npm package")]] = None
    suffix: Annotated[str, matching(_SUFFIX, "a suffix such as -linux-x64")] | Literal[""] = ""
    executable: RelativePath
    interpreter: str = ""
    integrity: Integrity


class ProgramSource(WireModel):
    """Where the program comes from: exactly one of ``npm``, ``pypi`` and ``archive``.

    ``executable`` is the file to run, a path in the package or archive. An npm program with a package for each platform
    has ``platforms`` instead. A PyPI program has no ``executable``. Its ``module`` is the Python module to run, and its
    ``requirements`` is a file of pinned and hashed requirements.
    """

    npm: Maybe[Annotated[str, matching(_PACKAGE, "the name of an npm package")]] = None
    pypi: Maybe[Annotated[str, matching(_PACKAGE, "the name of a package on PyPI")]] = None
    archive: Maybe[ResolvedPath] = None
    version: Annotated[str, matching(_VERSION, "an exact version such as '1.2.3'")]
    integrity: Maybe[Integrity] = None
    executable: Maybe[RelativePath] = None
    platforms: dict[Platform, PlatformPackage] = {}  # noqa: RUF012 - pydantic copies it
    requirements: Maybe[ResolvedPath] = None
    module: Maybe[Annotated[str, matching(_MODULE, "the name of a Python module")]] = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        kinds = [name for name in ("npm", "pypi", "archive") if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise refusal("field-value", "must have exactly one of 'npm', 'pypi' and 'archive'")
        if kinds == ["pypi"]:
            needed = {"requirements", "module"}
        elif self.platforms and self.npm:
            needed = {"platforms"}
        else:
            needed = {"integrity", "executable"}
        given = self.model_fields_set - {*kinds, "version"}
        if given != needed:
            wanted = " and ".join(map(repr, sorted(needed)))
            raise refusal("field-value", f"must have {wanted} besides {kinds[0]!r} and 'version', and no other keys")
        return self


class ConditionalArguments(WireModel):
    """Arguments that are added only under a condition."""

    when: Condition
    arguments: Annotated[tuple[Template, ...], _List]

    @field_validator("arguments")
    @classmethod
    def _fit_condition(cls, arguments: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        return tuple(_require_condition(argument, info.data.get("when", "")) for argument in arguments)


class ConditionalValue(WireModel):
    """The value of a variable that is set only under a condition."""

    when: Condition
    value: Template

    @field_validator("value")
    @classmethod
    def _fits_condition(cls, value: str, info: ValidationInfo) -> str:
        return _require_condition(value, info.data.get("when", ""))


class EventRule(WireModel):
    """How to read an event that has the values in ``match``, which maps paths to values.

    ``text`` is the path of the event's text. ``counts`` maps names such as ``input_tokens`` to paths.
    """

    match: dict[EventPath, str | bool | int]
    kind: EventKind
    text: Maybe[EventPath] = None
    counts: dict[Identifier, EventPath] = {}  # noqa: RUF012 - pydantic copies it


DeclarationT = TypeVar("DeclarationT", bound="ProgramDeclaration")
PlainArgument: TypeAlias = Annotated[Template, AfterValidator(_argument)]
PlainValue: TypeAlias = Annotated[Template, AfterValidator(_plain)]
FileText: TypeAlias = Annotated[Template, AfterValidator(_file)]
Arguments: TypeAlias = Annotated[tuple[PlainArgument | ConditionalArguments, ...], _List]


class ProgramDeclaration(WireModel):
    """The declaration of a program, such as Node. For an agent, :class:`AgentDeclaration` adds fields.

    ``version_line`` matches the whole output of ``--version``. Its only group is the version.
    """

    schema_version: Annotated[str, BeforeValidator(_schema_version)]
    summary: str = ""
    source: ProgramSource
    runtime: Maybe[Runtime] = None
    version_line: Maybe[Annotated[str, AfterValidator(_regular_expression)]] = None
    models: Annotated[tuple[Model, ...], _List] = ()


class AgentDeclaration(ProgramDeclaration):
    """The content of ``NAME.yaml``.

    ``models`` are prefixes of the model names that the program lists. ``aliases`` are the names that the program itself
    resolves to a model. ``files`` maps paths in the program's home to contents. ``gave_up_exit_codes`` are the exit
    codes of a program that gave up.
    """

    dialect: Dialect
    api_key_env: Annotated[tuple[Variable, ...], _List] = ()
    aliases: Annotated[tuple[Model, ...], _List] = ()
    default_model: Maybe[Model] = None
    arguments: Arguments
    family_arguments: dict[Identifier, Arguments] = {}  # noqa: RUF012 - pydantic copies it
    files: dict[RelativePath, FileText] = {}  # noqa: RUF012 - pydantic copies it
    environment: dict[Variable, PlainValue | ConditionalValue] = {}  # noqa: RUF012 - pydantic copies it
    events: Annotated[str, AfterValidator(_parser)] | Annotated[tuple[EventRule, ...], _List] = ()
    gave_up_exit_codes: Annotated[tuple[Annotated[int, Field(ge=1, le=255)], ...], _List] = ()

    @property
    def supported(self) -> frozenset[str]:
        """The :data:`SETTINGS` that the declaration passes to its program.

        These are the settings in the ``when`` of arguments and variables. ``extra_arguments`` is included if one of the
        arguments is :data:`EXTRA_ARGUMENTS`.
        """
        items = [item for arguments in (self.arguments, *self.family_arguments.values()) for item in arguments]
        conditions = {getattr(item, "when", "") for item in (*items, *self.environment.values())}
        extra = {"extra_arguments"} if EXTRA_ARGUMENTS in items else set()
        return frozenset(extra | (conditions & set(SETTINGS)))


def read_declaration(path: Path, model: type[DeclarationT]) -> tuple[DeclarationT, bytes]:
    """Return a declaration and the bytes of its file. Raises :class:`ConfigError` with line and column."""
    text, data = read_text(path, "agent declaration", MAX_YAML_BYTES, follow=True)
    value, source, faults = parse_yaml(text, str(path))
    problems = Problems()
    problems.extend(faults, source)
    problems.raise_if_any()
    declaration, faults = fit(model, value, context={"base": path.absolute().parent})
    problems.extend(faults, source)
    problems.raise_if_any()
    assert declaration is not None
    return declaration, data
