"""The functions for programs that embed SecureBench: ``securebench.load_config`` and ``securebench.run``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from securebench.tester_config import KeepWorkspaces, TesterConfig, load_tester_config
from securebench.tester_run.options import RunOptions
from securebench.tester_run.run import run_benchmark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from securebench.progress import Event
    from securebench.results.summary import TesterRunSummary


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> TesterConfig:
    """Read a tester YAML. Raises :class:`ConfigError` with all problems and their locations.

    Each of the ``overrides``, such as ``run.trials=3``, replaces a value, as ``--set`` does.
    """
    return load_tester_config(Path(path), overrides)


def run(  # noqa: PLR0913 - the options of the command line
    config: TesterConfig | str | Path,
    *,
    task: Sequence[str] = (),
    tag: Sequence[str] = (),
    family: Sequence[str] = (),
    shuffle: int | None = None,
    limit: int | None = None,
    trials: int | None = None,
    output_dir: str | Path | None = None,
    workers: int | Literal["auto"] | None = None,
    keep_workspaces: Literal["all", "failures", "none"] | None = None,
    driver: str | None = None,
    executor: str | None = None,
    budget_usd: float | None = None,
    price_table: str | Path | None = None,
    resume: bool = False,
    variables: Mapping[str, str] | None = None,
    on_event: Callable[[Event], None] | None = None,
    notify: Callable[[str], None] | None = None,
) -> TesterRunSummary:
    """Run a benchmark pack against an agent, as ``securebench run`` does, and return the summary.

    ``config`` is a configuration or the path of a tester YAML. The options are those of the command line; ``None``
    means the value of the configuration. ``variables`` has the values of ``harness.env`` and the keys of providers. The
    default is this process's environment. No env file is read. ``on_event`` is called with every progress event except
    agent output, and ``notify`` is called with messages for the user. Both may be called from any thread.

    The caller handles signals. ``KeyboardInterrupt`` stops the run and is raised again. Finished tasks are saved, but
    the run is not closed.

    Before any task has run, raises :class:`ConfigError`, :class:`InfrastructureError`, and ``ValueError`` for a budget
    that is not positive. Later problems are in the records and in the summary's ``problems``.
    """
    options = RunOptions(
        task=tuple(task),
        tag=tuple(tag),
        family=tuple(family),
        shuffle=shuffle,
        limit=limit,
        trials=trials,
        output_dir=Path(output_dir) if output_dir is not None else None,
        workers=workers,
        keep_workspaces=None if keep_workspaces is None else KeepWorkspaces(keep_workspaces),
        driver=driver,
        executor=executor,
        budget_usd=budget_usd,
        price_table=Path(price_table) if price_table is not None else None,
        resume=resume,
        variables=dict(os.environ) if variables is None else variables,
        notify=notify or (lambda _text: None),
    )
    loaded = config if isinstance(config, TesterConfig) else load_config(config)
    return run_benchmark(loaded, options, [on_event] if on_event else [])
