"""The model harness runs a model without an agent program.

A small program in the sandbox holds the conversation with the model.
"""

from __future__ import annotations

import inspect
import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from securebench import __version__
from securebench.agents.store import AgentStore
from securebench.harnesses.model.events import ModelEventParser
from securebench.harnesses.model.examples import read_examples, read_system_prompt
from securebench.harnesses.model.guest import apis, client, main, prompts, shell
from securebench.harnesses.pipeline import Invocation, time_limit
from securebench.harnesses.provider.command_provider import model_endpoint
from securebench.harnesses.provider.connected import ConnectedHarness
from securebench.harnesses.provider.connection import ProviderConnection
from securebench.harnesses.provider.endpoints import NO_PROXY, PLACEHOLDER
from securebench.harnesses.provider.program.runtime import prepare_runtime
from securebench.harnesses.provider.prompts import ANSWER_FILES, instruction_for
from securebench.harnesses.provider.session import SessionAgent
from securebench.tasks import DEFAULT_IMAGE
from securebench.tester_config import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.harnesses.agent_session import AgentSession
    from securebench.harnesses.base import ProduceContext, RunContext
    from securebench.harnesses.provider.program.runtime import AgentRuntime
    from securebench.resources import JsonValue
    from securebench.tasks import AgentView

_MODULES: Final = (apis, client, prompts, shell, main)
"""The modules of the program, in the order in which they are executed: each after those that it imports."""

_PROGRAM: Final = "SECUREBENCH_MODEL_PROGRAM"
_START: Final = f"""\
import json, os, sys
for name, source in json.loads(os.environ.pop("{_PROGRAM}")):
    module = sys.modules[name] = type(sys)(name)
    exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)
module.main()
"""
"""Runs the program from an environment variable. So it needs no file, and process lists do not show its source."""

_CHUNK: Final = 30_000
"""The maximum number of characters of the setup in one environment variable.

Linux limits a variable to 128 KiB, and a character has up to four bytes.
"""

_SENT: Final = ("model", "dialect", "temperature", "max_tokens", "seed", "effort")
_LOOP: Final = ("retries", "max_turns", "command_timeout_seconds")


@cache
def _program() -> str:
    """Return the names and sources of the program's modules as JSON."""
    return json.dumps([(module.__name__, inspect.getsource(module)) for module in _MODULES])


class ModelHarnessProducer(ConnectedHarness):
    """Measures a model: in one turn if the answer is text or code, in a loop with a shell tool otherwise.

    Its program runs in the sandbox and calls the model through the relay, as agents do. Raises the errors
    of :func:`read_system_prompt`, :func:`read_examples` and :meth:`ProviderFacts.with_auth`.
    """

    name = "model"
    settings_model = ModelConfig

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._connection = ProviderConnection(model_endpoint(config, "harness.config", config.allowed_domains))
        self._system = read_system_prompt(config)
        self._examples = read_examples(config.examples)
        self._runtime: AgentRuntime | None = None

    @property
    def programs(self) -> tuple[str, ...]:
        """See :attr:`HarnessProducer.programs`."""
        return (DEFAULT_IMAGE,) if self._runtime else ()

    def prepare(self, run: RunContext) -> Mapping[str, JsonValue]:
        """See :meth:`HarnessProducer.prepare`. Also prepares Python for tasks in other images than the base image."""
        self._connection.prepare(run)
        if any(image.reference != DEFAULT_IMAGE for image in run.images):
            self._runtime = prepare_runtime("python", AgentStore(), run)
        settings = self._config.model_dump(include={*_SENT[2:], *_LOOP}, exclude_none=True)
        texts = {"system_prompt": self._system, "examples": self._examples}
        return {
            "program": self.name,
            "version": __version__,
            **self._connection.endpoint.identity(),
            **(self._runtime.identity if self._runtime else {}),
            "settings": {**settings, **{name: text.identity() for name, text in texts.items() if text}},
        }

    def invocation(self, view: AgentView) -> Invocation:
        """Return the command line; the shorter of the tester's and the task's time limits applies."""
        config = self._config
        runtime = None if (view.environment.image or DEFAULT_IMAGE) == DEFAULT_IMAGE else self._runtime
        setup = json.dumps(self._setup(view), ensure_ascii=False)
        chunks = (setup[start : start + _CHUNK] for start in range(0, len(setup), _CHUNK))
        return Invocation(
            argv=(*(runtime.command if runtime else ("python3",)), "-I", "-S", "-B", "-c", _START),
            timeout_seconds=time_limit(config.timeout_seconds, view),
            artifact_path=ANSWER_FILES.get(view.candidate_kind),
            task_file=config.task_file,
            environment={
                **NO_PROXY,
                _PROGRAM: _program(),
                **{f"{main.SETUP}{number}": chunk for number, chunk in enumerate(chunks)},
            },
            mounts=runtime.mounts if runtime else (),
        )

    def open_session(self, view: AgentView, context: ProduceContext) -> AgentSession:
        """Open egress to the provider and the allowed domains, and return the agent's session.

        Raises :class:`EgressError`.
        """
        identity: dict[str, JsonValue] = {"program": self.name, "version": __version__}
        agent = SessionAgent(identity=identity, parser=ModelEventParser(), is_trusted=True, is_streamed=False)
        return self._connection.open_session(view, context, agent)

    def _setup(self, view: AgentView) -> dict[str, Any]:
        """Return the setup of the program in the sandbox."""
        endpoint, answer_file = self._connection.endpoint, ANSWER_FILES.get(view.candidate_kind)
        return {
            **self._config.model_dump(include={*_SENT, *_LOOP}),
            "url": endpoint.agent_url,
            "key": PLACEHOLDER,
            "is_own": endpoint.is_own,
            "system": self._system.text if self._system else None,
            "examples": self._examples.of_family(view.family) if self._examples else [],
            "family": view.family,
            "answer_file": answer_file,
            "instruction": "" if answer_file else instruction_for(view),
        }
