"""Settings of harnesses (``harness.config`` of a tester YAML) and of the judge model (``judge``).

These pydantic models are frozen, reject unknown keys and convert no types. Host paths in a file are relative to the
file's directory.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, ValidationInfo, field_validator, model_validator

from securebench.families.fields import Seconds, Text
from securebench.limits import MIB, ProviderTimeouts
from securebench.money import TokenPrices, micro_usd
from securebench.strict_input.models import WireModel, refusal
from securebench.tester_config.endpoints import BaseUrl
from securebench.tester_config.fields import (
    TIB,
    ApiVersion,
    Arguments,
    Command,
    Domains,
    Maybe,
    Model,
    ResolvedPath,
    ServerName,
    Size,
    ToolNames,
    Variable,
    Version,
    WorkspacePath,
)

DEFAULT_TIMEOUT_SECONDS: Final = 900.0
"""The default time limit of an agent on one task."""

KeyFormName: TypeAlias = Literal["bearer", "azure"]
"""How the key is sent, if not in the default way of the API."""

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model reasons. Not every model accepts every value."""

Price: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000)]
Usd: TypeAlias = Annotated[float, Field(ge=0.000001, le=1_000_000_000)]
"""An amount of US dollars. It is rounded to micro-dollars."""

_TIMEOUTS: Final = ProviderTimeouts()


def _check_auth(auth: str | None, api_version: str | None, base_url: str | None) -> None:
    """Check ``auth`` together with the other settings of an endpoint."""
    if auth != "azure":
        if api_version is not None:
            raise refusal("auth-unfit", "has an 'api_version' without 'auth: azure'", "remove 'api_version'")
        return
    if base_url is None:
        hint = "use a URL such as 'https://RESOURCE.openai.azure.com/openai/v1'"
        raise refusal("auth-unfit", "has 'auth: azure' without the 'base_url' of the Azure resource", hint)
    if api_version is None and not base_url.endswith("/v1"):
        hint = "set 'api_version', for example to '2024-10-21', or use a 'base_url' that ends in '/openai/v1'"
        raise refusal("auth-unfit", "has 'auth: azure' without an 'api_version'", hint)


class HarnessSettings(WireModel):
    """The settings that all harnesses have. A harness with more settings uses a subclass."""

    identified_by_content: ClassVar[frozenset[str]] = frozenset()
    """Settings that are paths of files. The harness is identified by the contents of these files, not by the paths."""

    task_file: WorkspacePath = "task.json"
    """The path of the task file in the workspace."""
    timeout_seconds: Seconds = DEFAULT_TIMEOUT_SECONDS
    """The time limit of the agent on one task."""
    allowed_domains: Domains = ()
    """The domains, including subdomains, that the agent can reach through the proxy."""


class Budget(WireModel):
    """The provider budget of one trial of a task. ``tokens`` counts input and output together; ``usd`` needs prices."""

    requests: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    tokens: Annotated[int, Field(ge=1, le=1_000_000_000_000)] = 50_000_000
    bytes: Annotated[Size, Field(ge=1, le=4 * TIB)] = 2 * 1024 * MIB
    usd: Maybe[Usd] = None


class ProviderTimeoutSettings(WireModel):
    """Provider timeouts in seconds: see :class:`ProviderTimeouts`."""

    connect: Seconds = _TIMEOUTS.connect
    first_byte: Seconds = _TIMEOUTS.first_byte
    between_bytes: Seconds = _TIMEOUTS.between_bytes
    whole_answer: Seconds = _TIMEOUTS.whole_answer


class Prices(WireModel):
    """What a provider charges, in US dollars per million tokens.

    ``cached_input`` and ``cache_write`` default to ``input``. ``cache_write_1h`` (for tokens written to the cache for
    an hour) defaults to ``cache_write``.
    """

    input: Price
    output: Price
    cached_input: Maybe[Price] = None
    cache_write: Maybe[Price] = None
    cache_write_1h: Maybe[Price] = None

    def exact(self) -> TokenPrices:
        """Return the prices in micro-dollars, as integers."""
        write = self.input if self.cache_write is None else self.cache_write
        return TokenPrices(
            input=micro_usd(self.input),
            cached_input=micro_usd(self.input if self.cached_input is None else self.cached_input),
            cache_write=micro_usd(write),
            cache_write_1h=micro_usd(write if self.cache_write_1h is None else self.cache_write_1h),
            output=micro_usd(self.output),
        )


class AgentVariables(WireModel):
    """The environment variables that tell an agent about its provider. ``None`` means the dialect's usual name."""

    base_url: Maybe[Variable] = None
    api_key: Maybe[Variable] = None
    model: Maybe[Variable] = None
    effort: Maybe[Variable] = None


class ModelProvider(WireModel):
    """A model and its provider.

    The relay adds the key and enforces ``model``, ``provider_tools``, ``budget`` and ``timeouts``.

    ``api_key_env`` is the tester's environment variable with the key. Its default depends on the dialect. ``auth`` is
    how the key is sent, and ``api_version`` is the version of Azure's API.
    """

    dialect: Literal["responses", "messages", "chat_completions", "gemini"]
    model: Model
    base_url: Maybe[BaseUrl] = None
    api_key_env: Maybe[Variable] = None
    auth: Maybe[KeyFormName] = None
    api_version: Maybe[ApiVersion] = None
    provider_tools: bool = False
    budget: Budget = Budget()
    timeouts: ProviderTimeoutSettings = ProviderTimeoutSettings()
    prices: Maybe[Prices] = None

    @model_validator(mode="after")
    def _auth(self) -> Self:
        _check_auth(self.auth, self.api_version, self.base_url)
        return self


class CommandProvider(ModelProvider):
    """The model provider of an agent that is run as a command.

    ``variables`` has the names of the environment variables that tell the agent about the provider.
    """

    effort: Maybe[Effort] = None
    variables: AgentVariables = AgentVariables()

    @property
    def base_url_variable(self) -> str:
        """The name of the agent's environment variable that contains the relay's URL."""
        return self.variables.base_url or ("GOOGLE_GEMINI" if self.dialect == "gemini" else self._prefix) + "_BASE_URL"

    @property
    def api_key_variable(self) -> str:
        """The name of the agent's environment variable that contains a placeholder for the key."""
        return self.variables.api_key or f"{self._prefix}_API_KEY"

    @property
    def model_variable(self) -> str:
        """The name of the agent's environment variable that contains the model's name."""
        return self.variables.model or f"{self._prefix}_MODEL"

    @property
    def effort_variable(self) -> str:
        """The name of the agent's environment variable that contains the reasoning effort."""
        return self.variables.effort or f"{self._prefix}_REASONING_EFFORT"

    @property
    def _prefix(self) -> str:
        return {"messages": "ANTHROPIC", "gemini": "GEMINI"}.get(self.dialect, "OPENAI")

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        keys = {self.api_key_variable, self.api_key_env}
        values = (self.base_url_variable, self.model_variable, self.effort_variable)
        if len(set(values)) < len(values) or not keys.isdisjoint(values):
            raise refusal(
                "field-duplicate", "uses one variable for two values", "choose different names in 'variables'"
            )
        return self


class JudgeSettings(ModelProvider):
    """The judge model of ``model_graded`` rubrics: ``judge`` of a tester YAML. The relay adds the key.

    ``max_tokens`` limits one reply, including the model's reasoning. Without ``temperature`` or ``effort``, the model's
    default applies. ``budget`` is for one trial of a task.
    """

    provider_tools: Literal[False] = False
    max_tokens: Annotated[int, Field(ge=256, le=200_000)] = 8192
    temperature: Maybe[Annotated[float, Field(ge=0, le=2)]] = None
    effort: Maybe[Effort] = None


class CommandConfig(HarnessSettings):
    """An agent that is run as a command.

    Its answer is the file ``artifact_path``. If this is ``None``, its answer is its stdout or the files it changed,
    depending on the family.
    """

    command: Command
    artifact_path: Maybe[WorkspacePath] = None
    agent_dir: Maybe[ResolvedPath] = None
    """A host directory that is mounted read-only at ``/opt/securebench/agent``."""
    provider: Maybe[CommandProvider] = None


class McpServer(WireModel):
    """An MCP server that the agent program starts in its sandbox."""

    command: Command
    environment: dict[Variable, str] = {}  # noqa: RUF012 - pydantic copies it


class ProviderSettings(HarnessSettings):
    """The settings of all declared agents. Some agents have a default for ``model``.

    ``version`` is exact, ``latest``, or ``None`` for the version in the agent's declaration. ``base_url`` replaces the
    provider's public endpoint. ``auth`` is how the key is sent. ``api_version`` is for Azure's API.
    ``credentials`` is ``relay`` (the key stays outside the sandbox) or ``passthrough``. ``provider_tools`` allows tools
    that the provider runs: web search, web fetch, code execution. ``prices`` replaces those of the price table.

    The settings from ``effort`` to ``extra_arguments`` change what the program does. The declaration of a program says
    which of these settings the program supports. ``system_prompt_file`` replaces the program's system prompt, and
    ``instructions_file`` is added to that prompt.
    """

    identified_by_content: ClassVar = frozenset({"instructions_file", "system_prompt_file"})
    model: Model
    version: Maybe[Version] = None
    base_url: Maybe[BaseUrl] = None
    credentials: Literal["relay", "passthrough"] = "relay"
    auth: Maybe[KeyFormName] = None
    api_version: Maybe[ApiVersion] = None
    provider_tools: bool = False
    budget: Budget = Budget()
    prices: Maybe[Prices] = None
    provider_timeouts: ProviderTimeoutSettings = ProviderTimeoutSettings()
    effort: Maybe[Effort] = None
    system_prompt_file: Maybe[ResolvedPath] = None
    instructions_file: Maybe[ResolvedPath] = None
    max_turns: Maybe[Annotated[int, Field(ge=1, le=10_000)]] = None
    allowed_tools: ToolNames = ()
    mcp_servers: dict[ServerName, McpServer] = {}  # noqa: RUF012 - pydantic copies it
    extra_arguments: Arguments = ()
    agent_dir: Maybe[ResolvedPath] = None
    """A host directory that is mounted read-only at ``/opt/securebench/agent``, for MCP servers."""

    @model_validator(mode="after")
    def _auth(self) -> Self:
        _check_auth(self.auth, self.api_version, self.base_url)
        return self


class ModelConfig(HarnessSettings, ModelProvider):
    """A model without an agent program. It answers text and code tasks in one turn, and other tasks in a shell loop.

    A setting that is ``None`` is not sent, so that the provider's default applies. The exception is ``max_tokens`` in
    the Messages API, which requires it.
    """

    identified_by_content: ClassVar = frozenset({"examples", "system_prompt_file"})
    system_prompt: Maybe[Text] = None
    system_prompt_file: Maybe[ResolvedPath] = None
    examples: Maybe[ResolvedPath] = None
    """A JSON Lines file of few-shot examples, for families that are answered in one turn."""
    temperature: Maybe[Annotated[float, Field(ge=0, le=2)]] = None
    max_tokens: Maybe[Annotated[int, Field(ge=1, le=10_000_000)]] = None
    """Maximum output tokens of one answer."""
    seed: Maybe[Annotated[int, Field(ge=0, lt=2**31)]] = None
    effort: Maybe[Effort] = None
    retries: Annotated[int, Field(ge=0, le=10)] = 1
    """How many times in a row to ask again after an answer that does not have the required form."""
    max_turns: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Maximum number of the model's answers in one loop."""
    command_timeout_seconds: Seconds = 120.0
    """The time limit of each command that the model runs."""

    @field_validator("system_prompt_file", "max_tokens", "seed")
    @classmethod
    def _consistent(cls, value: Any, info: ValidationInfo) -> Any:
        """Check a setting together with the settings that are declared before it."""
        given = info.data
        match info.field_name:
            case "system_prompt_file" if value and given.get("system_prompt"):
                raise refusal("field-value", "cannot be combined with 'system_prompt'", "remove one of the two")
            case "max_tokens" if value and (budget := given.get("budget")) and value > budget.tokens:
                raise refusal("field-value", "is above 'budget.tokens'", "lower it, or raise the budget")
            case "seed" if value is not None and given.get("dialect") in ("messages", "responses"):
                raise refusal("field-value", f"is not supported with 'dialect: {given['dialect']}'", "remove it")
        return value
