"""Load a tester YAML."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from securebench import plugins
from securebench.dangerous_commands import VerificationPolicy
from securebench.errors import ConfigError
from securebench.limits import Limits
from securebench.plugins import AUTO_DRIVER, DEFAULT_EXECUTOR, ExtensionKind
from securebench.printable import printable_line
from securebench.strict_input.faults import Fault, Problems, did_you_mean, name_of
from securebench.strict_input.files import open_regular, read_text
from securebench.strict_input.models import WireModel, describe, fit
from securebench.strict_input.yaml_text import MAX_YAML_BYTES, parse_yaml
from securebench.tester_config.endpoints import credentials_faults
from securebench.tester_config.fields import place_from
from securebench.tester_config.model import (
    BenchmarkPaths,
    HarnessConfig,
    KeepWorkspaces,
    RunConfig,
    SandboxConfig,
    TaskSelection,
    TesterConfig,
    VerifierConfig,
)
from securebench.tester_config.overrides import OverriddenSource, override_names, parse_overrides, with_overrides
from securebench.tester_config.places import OUTPUT_DIR_HINT, agent_dir_fault, output_dir_code, output_dir_fault
from securebench.tester_config.settings import HarnessSettings, JudgeSettings, ProviderSettings
from securebench.tester_config.wire import TesterModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from securebench.resources import JsonValue
    from securebench.strict_input.faults import Document

_Place: TypeAlias = tuple[str, ...]

_DEFAULTS: Final = {ExtensionKind.DRIVER: AUTO_DRIVER, ExtensionKind.EXECUTOR: DEFAULT_EXECUTOR}
"""The names that are used if a tester YAML does not name a driver or an executor."""

_MANIFEST = ("benchmark", "manifest")
_TASKS = ("benchmark", "tasks")
_OUTPUT = ("run", "output_dir")
_AGENT = ("harness", "config", "agent_dir")


def load_tester_config(path: Path, overrides: Iterable[str] = ()) -> TesterConfig:
    """Read a tester YAML of schema version 0.2. Raises :class:`ConfigError` with all problems.

    Host paths in the file are relative to its directory. The pack's manifest and tasks file must be regular files; they
    are not read. Each of the ``overrides``, such as ``run.trials=3``, replaces or adds a value, and is checked like a
    value of the file.
    """
    return read_tester_file(path, overrides).config()


@dataclass(frozen=True, slots=True)
class TesterFile:
    """A parsed YAML file, before its content is checked. ``digest`` is the sha256 (hex) of its bytes.

    ``overrides`` maps keys to the values that replaced the file's own values.
    """

    value: Any
    path: Path
    """Absolute."""
    digest: str
    source: Document
    overrides: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def is_suite(self) -> bool:
        """Whether the file describes a suite of runs, not a single run."""
        return isinstance(self.value, dict) and "suite" in self.value

    def config(self) -> TesterConfig:
        """Return the configuration of a single run. Raises :class:`ConfigError` with all problems."""
        config, faults = config_of(self.value, self)
        self.raise_if_any(faults)
        assert config is not None
        return config

    def raise_if_any(self, faults: Iterable[Fault]) -> None:
        """Raise :class:`ConfigError` with ``faults`` and their locations. Do nothing if there are no faults."""
        problems = Problems()
        problems.extend(faults, self.source)
        problems.raise_if_any()


def read_tester_file(path: Path, overrides: Iterable[str] = ()) -> TesterFile:
    """Read a tester YAML or a suite, with ``overrides``.

    Raises :class:`ConfigError` if the file cannot be read or is not valid YAML, or if an override cannot be applied.
    """
    replacements = parse_overrides(overrides)
    text, data = read_text(path, "tester configuration", MAX_YAML_BYTES, follow=True)
    value, positions, faults = parse_yaml(text, str(path))
    place = place_from(Path(path).absolute().parent, Path(path).name)
    source = OverriddenSource(positions, replacements)
    file = TesterFile(value, place, hashlib.sha256(data).hexdigest(), source, override_names(replacements))
    file.raise_if_any(faults)
    return replace(file, value=with_overrides(value, replacements))


def config_of(value: Any, file: TesterFile) -> tuple[TesterConfig | None, list[Fault]]:
    """Return the configuration in ``value``, or ``None`` and its faults.

    ``value`` comes from ``file``. Host paths in ``value`` are relative to the directory of ``file``.
    """
    model, faults = fit(TesterModel, value)
    settings, of_settings = _fit_settings(value, file.path.parent)
    judge, of_judge = _fit_judge(value, file.path.parent)
    faults = [*faults, *of_settings, *of_judge, *_place_faults(value, file.path)]
    if faults or model is None:
        return None, faults
    return replace(_config(model, settings, file.path, file.digest), judge=judge, overrides=file.overrides), []


def _fit_settings(value: Any, base: Path) -> tuple[dict[_Place, WireModel], list[Fault]]:
    """Return the settings of each extension by section, and the faults of invalid settings and unknown extensions."""
    found: dict[_Place, WireModel] = {}
    faults: list[Fault] = []
    for kind, place, key, of_config in _extensions(value):
        section = _at(value, place)
        name, config = section.get(key, _DEFAULTS.get(kind)), section.get(of_config, {})
        if not isinstance(name, str) or not isinstance(config, dict):
            continue  # TesterModel reports the problem
        if not plugins.is_choice(kind, name):
            faults.append(_unknown(kind, name, (*place, key)))
            continue
        is_auto = kind is ExtensionKind.DRIVER and name == AUTO_DRIVER
        extension = None if is_auto else plugins.load(kind, name)
        model = (extension and extension.settings_model) or WireModel
        config = {**getattr(extension, "settings_defaults", {}), **config}
        settings, of_settings = fit(model, config, context={"base": base})
        if isinstance(settings, ProviderSettings):
            of_settings = list(credentials_faults(settings.model_dump(exclude_unset=True)))
        faults += [fault.below((*place, of_config)) for fault in of_settings]
        if settings is not None:
            found[place] = settings
    return found, faults


def _fit_judge(value: Any, base: Path) -> tuple[JudgeSettings | None, list[Fault]]:
    """Return the section ``judge``, if there is one, and its faults.

    A section that is not an object is reported when the whole file is checked.
    """
    if not isinstance(value, dict) or not isinstance(value.get("judge"), dict):
        return None, []
    judge, faults = fit(JudgeSettings, value["judge"], context={"base": base})
    return judge, [fault.below(("judge",)) for fault in faults]


def _extensions(value: Any) -> Iterator[tuple[ExtensionKind, _Place, str, str]]:
    """Yield the kind and the section of each extension, and two keys of the section.

    The value of the first key is the extension's name. The value of the second key is its settings.
    """
    if _at(value, ("run",)):
        yield ExtensionKind.EXECUTOR, ("run",), "executor", "executor_config"
    if _at(value, ("harness",)):
        yield ExtensionKind.HARNESS, ("harness",), "type", "config"
    if _at(value, ("sandbox",)):
        yield ExtensionKind.DRIVER, ("sandbox",), "driver", "config"
    verifiers = ("verification", "verifiers")
    for family in _at(value, verifiers):
        if _at(value, (*verifiers, family)):
            yield ExtensionKind.VERIFIER, (*verifiers, family), "type", "config"


def _at(value: Any, place: _Place) -> dict[str, Any]:
    """Return the object at ``place``, or an empty one."""
    for key in place:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _unknown(kind: ExtensionKind, name: str, path: _Place) -> Fault:
    known = plugins.choices(kind)
    wanted = f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
    ignored = plugins.ignored_agents() if kind is ExtensionKind.HARNESS else {}
    own = next(
        (f"{printable_line(str(file))} is ignored: {ignored[file]}" for file in ignored if file.stem == name), ""
    )
    hint = own or did_you_mean(name, known) or "install the package that provides it"
    return Fault("field-value", f"{name_of(path)} must be {wanted}, but is {describe(name)}", path, hint)


def _place_faults(value: Any, file: Path) -> Iterator[Fault]:
    """Yield the faults of the paths of the pack's files, the output directory and ``agent_dir``."""
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
        hint = "its path is relative to this file" if missing else "use a separate directory for the agent, and no link"
        yield Fault(code, f"agent_dir {fault}", _AGENT, hint)


def _file_faults(path: tuple[str, ...], place: Path) -> Iterator[Fault]:
    try:
        open_regular(place, f"{path[-1]} file").close()
    except ConfigError as error:
        yield Fault(error.code, f"{error.message}: {place}", path, "paths are relative to this file")


def _named_place(value: Any, path: tuple[str, ...], base: Path) -> Path | None:
    """Return the host path that is the value of the nested keys ``path``, if there is a valid one."""
    value = _at(value, path[:-1]).get(path[-1])
    return place_from(base, value) if isinstance(value, str) and value and value.isprintable() else None


def _config(model: TesterModel, settings: Mapping[_Place, WireModel], path: Path, digest: str) -> TesterConfig:
    base = path.parent
    run, verification, sandbox = map(_given, (model.run, model.verification, model.sandbox))
    run["keep_workspaces"] = KeepWorkspaces(run.get("keep_workspaces", KeepWorkspaces.ALL))
    run["select"] = TaskSelection(**run.get("select", {}))
    verifiers = verification.pop("verifiers", {})
    run["executor_settings"] = settings["run",] if run.pop("executor_config", None) is not None else None
    run["budget_usd"] = run.pop("budget", {}).get("usd")
    run["prices"] = place_from(base, run["prices"]) if "prices" in run else None
    sandbox["settings"] = settings["sandbox",] if sandbox.pop("config", None) is not None else None
    harness = settings["harness",]
    assert isinstance(harness, HarnessSettings)
    return TesterConfig(
        path=path,
        digest=digest,
        run=RunConfig(**{**run, "output_dir": place_from(base, run["output_dir"])}),
        benchmark=BenchmarkPaths(place_from(base, model.benchmark.manifest), place_from(base, model.benchmark.tasks)),
        harness=HarnessConfig(model.harness.type, model.harness.env or (), harness, model.harness.name or ""),
        verification=VerificationPolicy(
            **{**verification, "deny_commands": tuple(verification.get("deny_commands", ()))}
        ),
        sandbox=SandboxConfig(**{**sandbox, "limits": Limits(**sandbox.get("limits", {}))}),
        verifiers={
            family: VerifierConfig(given["type"], settings["verification", "verifiers", family])
            for family, given in verifiers.items()
        },
    )


def _given(model: Any) -> dict[str, Any]:
    """Return what a section of the file sets, by key; an empty dictionary if the section is absent."""
    return {} if model is None else dict(model.model_dump(exclude_unset=True))
