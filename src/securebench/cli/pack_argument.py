"""A pack as an argument: a directory, a manifest file, or a tester YAML that names a pack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.benchmark_pack import BenchmarkPack
    from securebench.tester_config import BenchmarkPaths

_YAML_SUFFIXES = (".yaml", ".yml")


def load_pack(pack: Path, tasks: Path | None = None) -> BenchmarkPack:
    """Load the pack at ``pack``. ``tasks``: the tasks file, if it is not ``tasks.jsonl`` next to the manifest.

    Raises the errors of :func:`pack_files` and :func:`~securebench.benchmark_pack.load_benchmark_pack`.
    """
    from securebench.benchmark_pack import load_benchmark_pack

    files = pack_files(pack, tasks)
    return load_benchmark_pack(files.manifest, files.tasks)


def pack_files(pack: Path, tasks: Path | None = None) -> BenchmarkPaths:
    """Return the paths of the manifest and the tasks file of ``pack``.

    Raises :class:`ConfigError` (``pack-missing``, and the errors of reading a YAML file and of loading a tester YAML),
    and ``click.UsageError`` if ``tasks`` is given although ``pack`` is a tester YAML.
    """
    from securebench.tester_config import BenchmarkPaths, load_tester_config

    manifest = pack / "manifest.yaml" if pack.is_dir() else pack
    if not pack.is_dir() and _is_tester_yaml(pack):
        if tasks is not None:
            raise click.UsageError(f"{pack} is a tester YAML, which names its own tasks file: leave out --tasks")
        return load_tester_config(pack).benchmark
    return BenchmarkPaths(manifest, tasks or manifest.parent / "tasks.jsonl")


def _is_tester_yaml(path: Path) -> bool:
    """Return whether a YAML file looks like a tester YAML: it has a key that no manifest has.

    Raises :class:`ConfigError`: ``pack-missing`` if the name does not end with ``.yaml`` or ``.yml``, or the errors of
    :func:`read_text`.
    """
    from securebench.strict_input.files import read_text
    from securebench.strict_input.yaml_text import MAX_YAML_BYTES, parse_yaml

    if path.suffix not in _YAML_SUFFIXES:
        hint = "give a directory with a manifest.yaml, a manifest file, or a tester YAML"
        raise ConfigError(f"{path} is neither a directory nor a YAML file", code="pack-missing", hint=hint)
    value, _, _ = parse_yaml(read_text(path, "pack", MAX_YAML_BYTES, follow=True)[0], str(path))
    return isinstance(value, dict) and bool(value.keys() & {"schema_version", "run", "benchmark", "harness"})
