"""Loading a tester YAML."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securebench.dangerous_commands import VerificationPolicy
from securebench.errors import ConfigError
from securebench.limits import Limits, ProviderTimeouts
from securebench.strict_input.faults import Fault, Problems
from securebench.strict_input.files import open_regular, read_text
from securebench.strict_input.models import fit
from securebench.strict_input.yaml_text import MAX_YAML_BYTES, parse_yaml
from securebench.tester_config.endpoints import credentials_faults
from securebench.tester_config.model import (
    BenchmarkPaths,
    Budget,
    ClaudeCodeConfig,
    CodexConfig,
    CommandConfig,
    HarnessConfig,
    RunConfig,
    SandboxConfig,
    TesterConfig,
)
from securebench.tester_config.places import OUTPUT_DIR_HINT, agent_dir_fault, output_dir_code, output_dir_fault
from securebench.tester_config.wire import AGENT_MODELS, AgentModel, TesterModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.tester_config.model import AgentConfig

_MANIFEST = ("benchmark", "manifest")
_TASKS = ("benchmark", "tasks")
_OUTPUT = ("run", "output_dir")
_AGENT = ("harness", "config", "agent_dir")

_SHELL = ("/bin/sh", "-c")
"""What runs a command that is given as one string."""


def load_tester_config(path: Path) -> TesterConfig:
    """Read a tester YAML of schema version 0.2. Raises :class:`ConfigError` with every problem.

    Paths in it are relative to it. The pack's files must be there, as regular files; the pack itself is not read.
    """
    text, data = read_text(path, "tester configuration", MAX_YAML_BYTES, follow=True)
    value, source, faults = parse_yaml(text, str(path))
    problems = Problems()
    problems.extend(faults, source)
    problems.raise_if_any()
    model, faults = fit(TesterModel, value)
    agent, of_agent = _fit_agent(value)
    file = _place(Path(path).absolute().parent, Path(path).name)
    problems.extend([*faults, *of_agent, *_place_faults(value, file)], source)
    problems.raise_if_any()
    assert model is not None
    assert agent is not None
    return _config(model, agent, file, hashlib.sha256(data).hexdigest())


def _fit_agent(value: Any) -> tuple[AgentModel | None, list[Fault]]:
    """Hold ``harness.config`` to the model of its type, if there is one to be held to."""
    harness = value.get("harness") if isinstance(value, dict) else None
    kind = harness.get("type") if isinstance(harness, dict) else None
    if not isinstance(harness, dict) or not isinstance(kind, str) or kind not in AGENT_MODELS:
        return None, []
    config = harness.get("config", {})
    if not isinstance(config, dict):
        return None, []
    agent, faults = fit(AGENT_MODELS[kind], config)
    if agent is not None:
        faults = list(credentials_faults(_given(agent)))
    return agent, [fault.below(("harness", "config")) for fault in faults]


def _place_faults(value: Any, file: Path) -> Iterator[Fault]:
    """Yield what is wrong with the places on this machine that a configuration names, as far as it names any."""
    places = {path: _named_place(value, path, file.parent) for path in (_MANIFEST, _TASKS, _OUTPUT, _AGENT)}
    manifest, tasks, output, agent = places.values()
    for path, place in ((_MANIFEST, manifest), (_TASKS, tasks)):
        if place is not None:
            yield from _file_faults(path, place)
    pack = manifest.parent if manifest is not None else None
    if output is not None and pack is not None and (fault := output_dir_fault(output, pack)):
        yield Fault(output_dir_code(fault), f"run.output_dir {fault}", _OUTPUT, OUTPUT_DIR_HINT)
    secret = [place for place in (pack, manifest, tasks, file) if place is not None]
    if agent is not None and (fault := agent_dir_fault(agent, secret)):
        missing = not agent.is_symlink() and not agent.is_dir()
        code = "agent-dir-missing" if missing else "agent-dir-unsafe"
        hint = "its path is relative to this file" if missing else "give the agent a directory of its own"
        yield Fault(code, f"agent_dir {fault}", _AGENT, hint)


def _file_faults(path: tuple[str, ...], place: Path) -> Iterator[Fault]:
    try:
        open_regular(place, f"{path[-1]} file").close()
    except ConfigError as error:
        yield Fault(error.code, f"{error.message}: {place}", path, "paths are relative to this file")


def _named_place(value: Any, path: tuple[str, ...], base: Path) -> Path | None:
    """Return the place that is named at ``path`` of the configuration, if a path stands there."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return _place(base, value) if isinstance(value, str) and value and value.isprintable() else None


def _place(base: Path, text: str) -> Path:
    """Return where ``text`` leads from ``base``: its directory without links and ``..``, its name as it is."""
    path = base / text
    if path.name == "..":
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent), path.name)


def _config(model: TesterModel, agent: AgentModel, path: Path, digest: str) -> TesterConfig:
    base = path.parent
    run = _given(model.run)
    verification = _given(model.verification)
    return TesterConfig(
        path=path,
        digest=digest,
        run=RunConfig(**{**run, "output_dir": _place(base, run["output_dir"])}),
        benchmark=BenchmarkPaths(_place(base, model.benchmark.manifest), _place(base, model.benchmark.tasks)),
        harness=HarnessConfig(
            model.harness.type, tuple(model.harness.env or ()), _agent(model.harness.type, agent, base)
        ),
        verification=VerificationPolicy(
            **{**verification, "deny_commands": tuple(verification.get("deny_commands", ()))}
        ),
        sandbox=_sandbox(_given(model.sandbox)),
    )


def _given(model: Any) -> dict[str, Any]:
    """Return what a part of the file sets; nothing for a part that is not there."""
    return {} if model is None else dict(model.model_dump(exclude_unset=True))


def _agent(kind: str, agent: AgentModel, base: Path) -> AgentConfig:
    given = _given(agent)
    given["allowed_domains"] = tuple(given.get("allowed_domains", ()))
    if "budget" in given:
        given["budget"] = Budget(**given["budget"])
    if "provider_timeouts" in given:
        given["provider_timeouts"] = ProviderTimeouts(**given["provider_timeouts"])
    if kind == "codex":
        return CodexConfig(**given)
    if kind == "claude_code":
        return ClaudeCodeConfig(**given)
    command = given["command"]
    given["command"] = (*_SHELL, command) if isinstance(command, str) else tuple(command)
    if "agent_dir" in given:
        given["agent_dir"] = _place(base, given["agent_dir"])
    return CommandConfig(**given)


def _sandbox(given: dict[str, Any]) -> SandboxConfig:
    return SandboxConfig(**{**given, "limits": Limits(**given.get("limits", {}))})
