"""``securebench run``: run a benchmark pack or a suite."""

from __future__ import annotations

import errno
import json
import math
import os
import shlex
import signal
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from securebench.cli import EXIT_INTERRUPTED, complain
from securebench.cli.signing_options import passphrase_option, sign_option, signer_of
from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from rich.console import Console

    from securebench.progress import Event
    from securebench.results.summary import TesterRunSummary
    from securebench.tester_config import TesterConfig
    from securebench.tester_run import RunOptions

EXIT_ERRORS: Final = 3
EXIT_BELOW: Final = 4
"""Exit code with ``--fail-under``: the pass rate is too low, or no task has a verdict."""
EXIT_BUDGET: Final = 5
"""Exit code: the run reached its budget before all trials had run."""

_DRIVERS: Final = "What creates the sandboxes: auto, docker, oci, or an installed driver"

_DEFAULT_ENV_FILE: Final = Path(".env")


class NumberRange(click.FloatRange):
    """A range of numbers that refuses ``nan``, which :class:`click.FloatRange` accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class Workers(click.ParamType[Any]):
    """The maximum number of tasks that run at once, or ``auto``."""

    name = "workers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or ``auto``."""
        return "auto" if value == "auto" else int(click.IntRange(min=1).convert(value, param, ctx))


def known_extension(_ctx: click.Context, option: click.Parameter, name: str | None) -> str | None:
    """Return the name of a driver or executor. Raises ``click.BadParameter`` if it is not installed."""
    from securebench import plugins
    from securebench.plugins import ExtensionKind

    kind = ExtensionKind(f"{option.name}s")
    if name is not None and not plugins.is_choice(kind, name):
        raise click.BadParameter(f"{name!r} is not one of {', '.join(plugins.choices(kind))}.")
    return name


@click.command(name="run")
@click.argument("config_argument", metavar="[CONFIG]", required=False, type=click.Path(path_type=Path))
@click.option("--config", "config_option", type=click.Path(path_type=Path), help="The tester YAML, or a suite file.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a value of CONFIG.")
@click.option(
    "--env-file",
    type=click.Path(path_type=Path),
    help="A file with values for harness.env and the keys of providers.  [default: .env]",
)
@click.option("--task", multiple=True, metavar="GLOB", help="Run only tasks whose id matches; may be repeated.")
@click.option("--tag", multiple=True, metavar="TAG", help="Run only tasks with this tag; may be repeated.")
@click.option("--family", multiple=True, metavar="FAMILY", help="Run only tasks of this family; may be repeated.")
@click.option("--shuffle", type=click.IntRange(min=0), metavar="SEED", help="Run the tasks in a seeded random order.")
@click.option("--limit", type=click.IntRange(min=1), help="Run only the first N of the selected tasks.")
@click.option("--trials", type=click.IntRange(min=1), help="Run each task this many times.  [default: run.trials]")
@click.option("--output-dir", type=click.Path(path_type=Path), help="Write here instead of run.output_dir.")
@click.option("--resume", is_flag=True, help="Continue a run: keep finished tasks, run the rest.")
@click.option(
    "--workers",
    type=Workers(),
    metavar="N|auto",
    help="Tasks to run at once, or 'auto' to let the machine decide.  [default: run.max_workers]",
)
@click.option("--driver", metavar="NAME", callback=known_extension, help=f"{_DRIVERS}.  [default: sandbox.driver]")
@click.option(
    "--executor",
    metavar="NAME",
    callback=known_extension,
    help="What executes the tasks: local, ray, or an installed executor.  [default: run.executor]",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Address of the Ray cluster's head, or 'auto'. Implies --executor ray.  "
    "[default: run.executor_config.address]",
)
@click.option(
    "--budget-usd",
    type=NumberRange(min=1e-6, max=1_000_000_000),
    metavar="USD",
    help="Start no more tasks when the run has cost this much.  [default: run.budget.usd]",
)
@click.option(
    "--price-table",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The prices of models.  [default: run.prices]",
)
@click.option(
    "--keep-workspaces",
    type=click.Choice(["all", "failures", "none"]),
    help="Which workspaces to keep after the verdict.  [default: run.keep_workspaces]",
)
@click.option("--quiet", is_flag=True, help="Print no progress.")
@click.option("--show-command-output", is_flag=True, help="Show output of commands in agents' sandboxes.")
@click.option("--show-agent-output", is_flag=True, help="Show agents' output live, and keep it in agent-trace.log.")
@click.option("--show-verifier-output", is_flag=True, help="Show output of checkers and tests, redacted.")
@click.option(
    "--keep-verifier-output", is_flag=True, help="Keep output of checkers and tests in verifier-output/ of the run."
)
@sign_option
@passphrase_option
@click.option("--fail-under", type=NumberRange(0, 1), metavar="RATE", help="Exit with code 4 below this pass rate.")
@click.option("--lower-bound", is_flag=True, help="Use the lower end of the 95 % interval for --fail-under.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write JUnit XML for a CI system.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check configuration, pack, keys and output directory, and print what would run. Images, driver, agent "
    "programs and providers are not checked.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output.")
@click.pass_context
def command(ctx: click.Context, /, config_argument: Path | None, config_option: Path | None, **flags: Any) -> None:
    """Run a benchmark pack against an agent, or run a suite: several agents on several packs.

    CONFIG is the tester YAML or the suite file.

    Exit codes: 0 every task has a verdict or is pending; 1 an error, such as an invalid configuration; 2 wrong usage;
    3 a task ended in an infrastructure error, or the run has another problem; 4 only with --fail-under: the pass rate
    is too low, or no task has a verdict; 5 the run reached its budget; 130 interrupted.
    """
    config = _only_one(config_argument, config_option)
    if flags["address"] is not None and flags["executor"] not in (None, "ray"):
        raise click.UsageError("--address can only be used with --executor ray")
    if flags["lower_bound"] and flags["fail_under"] is None:
        raise click.UsageError("--lower-bound needs --fail-under RATE")
    with signals_interrupt():
        result = _run(config, flags)
    if isinstance(result, int):
        ctx.exit(result)
    with terminal_may_be_gone():
        _report(result, flags)
    below = gate([result.output_dir], flags)
    ctx.exit(exit_code(result) or below)


def exit_code(summary: TesterRunSummary) -> int:
    """Return the exit code of a run that has a summary. Verdicts do not change it."""
    from securebench.results.summary import RunEnd

    if summary.ending is RunEnd.INTERRUPTED:
        return EXIT_INTERRUPTED
    if summary.ending is RunEnd.OUT_OF_BUDGET:
        return EXIT_BUDGET
    return EXIT_ERRORS if summary.errors or summary.problems or summary.ending is RunEnd.STOPPED else 0


def gate(directories: Sequence[Path], flags: dict[str, Any]) -> int:
    """Write the ``--junit`` file, and return the exit code for ``--fail-under RATE``: every run must reach RATE."""
    from securebench.results.comparison import tally
    from securebench.results.read import read_run

    if flags["junit"] is None and flags["fail_under"] is None:
        return 0
    runs = [read_run(directory) for directory in directories]
    if flags["junit"] is not None:
        from securebench.cli.export_command import text_output
        from securebench.report.export.junit import write_junit

        with text_output(flags["junit"]) as file:
            write_junit(runs, file)
    code = 0
    for run in runs if flags["fail_under"] is not None else ():
        estimate = tally(run).estimate
        if estimate is None:
            complain(f"{run.directory}: no task has a verdict, so there is no pass rate to compare with --fail-under")
            code = EXIT_BELOW
            continue
        value = estimate.interval.low if flags["lower_bound"] else estimate.value
        if value < flags["fail_under"]:
            what = "the lower end of the interval of the pass rate" if flags["lower_bound"] else "the pass rate"
            complain(f"{run.directory}: {what} is {value:.1%}, below --fail-under {flags['fail_under']:.1%}")
            code = EXIT_BELOW
    return code


def _only_one(argument: Path | None, option: Path | None) -> Path:
    if argument is not None and option is not None and argument != option:
        raise click.UsageError(f"two files are given, {argument} and --config {option}, but only one can be run")
    config = option or argument
    if config is None:
        raise click.UsageError("no tester YAML or suite file is given: use --config PATH")
    return config


def _run(path: Path, flags: dict[str, Any]) -> TesterRunSummary | int:
    """Run what the file describes. Return the summary of a run, or the exit code of a suite or a dry run."""
    from securebench.cli.views.output import show_verifier_output
    from securebench.printable import printable
    from securebench.tester_config import KeepWorkspaces
    from securebench.tester_config.loader import read_tester_file
    from securebench.tester_run import RunOptions, run_benchmark

    _refuse_pack(path)
    overrides = flags["overrides"]
    if flags["address"] is not None:
        overrides += ("run.executor=ray", f"run.executor_config.address={flags['address']}")
    file = read_tester_file(path, overrides)
    console = console_for(stderr=True)

    def echo(line: str) -> None:
        console.print(printable(line), markup=False, soft_wrap=True)

    options = RunOptions(
        **{name: flags[name] for name in ("task", "tag", "family", "shuffle", "limit")},
        trials=flags["trials"],
        output_dir=flags["output_dir"],
        workers=flags["workers"],
        keep_workspaces=KeepWorkspaces(flags["keep_workspaces"]) if flags["keep_workspaces"] else None,
        driver=flags["driver"],
        executor=flags["executor"],
        budget_usd=flags["budget_usd"],
        price_table=flags["price_table"],
        resume=flags["resume"],
        show_agent_output=flags["show_agent_output"],
        keep_verifier_output=flags["keep_verifier_output"],
        show_verifier_output=partial(show_verifier_output, echo) if flags["show_verifier_output"] else None,
        sign=signer_of(flags["sign"], flags["passphrase_file"]),
        handle_signals=True,
        variables=_variables(flags["env_file"]),
        notify=_ignore if flags["quiet"] else echo,
    )
    if file.is_suite:
        from securebench.cli.suite_run import run_suite_file

        return run_suite_file(file, options, flags, console, echo)
    if flags["dry_run"]:
        return _dry_run(file.config(), options, as_json=flags["as_json"])
    with ExitStack() as stack:
        return run_benchmark(file.config(), options, sinks_for(flags, console, echo, stack))


def _dry_run(config: TesterConfig, options: RunOptions, *, as_json: bool) -> int:
    """Make the checks that need no sandbox and no network, and print what would run. Nothing is written."""
    from securebench.cli.views.dry_run import planned, planned_lines
    from securebench.tester_run.options import RunParts
    from securebench.tester_run.planning.plan import make_plan

    plan = planned(make_plan(config, options, RunParts()), options)
    click.echo(json.dumps(plan, indent=2) if as_json else "\n".join(planned_lines([plan])))
    return 0


def _refuse_pack(path: Path) -> None:
    """Raise :class:`ConfigError` if ``path`` is a pack: a common mistake, because ``validate`` accepts packs."""
    from securebench.errors import ConfigError

    directory = path.parent if path.name == "manifest.yaml" else path
    if (directory / "manifest.yaml").is_file() and (directory / "tasks.jsonl").is_file():
        hint = "pass a tester YAML, which names the pack under 'benchmark' and the agent under 'harness'"
        raise ConfigError(f"{path} is a pack; 'run' needs a tester YAML", hint=hint)


def _variables(env_file: Path | None) -> dict[str, str]:
    """Return the variables of the environment and of the env file. The environment takes precedence."""
    from securebench.tester_config import load_env_file

    if env_file is None and not _DEFAULT_ENV_FILE.is_file():
        return dict(os.environ)
    return {**load_env_file(env_file or _DEFAULT_ENV_FILE), **os.environ}


def sinks_for(
    flags: dict[str, Any], console: Console, echo: Callable[[str], None], stack: ExitStack
) -> list[Callable[[Event], None]]:
    """Return the functions that show the events of a run, as the flags ask. ``stack`` closes the live display."""
    from securebench.cli.views.output import AgentOutputSink, CommandOutputSink
    from securebench.cli.views.plain import PlainSink

    sinks: list[Callable[[Event], None]] = []
    if not flags["quiet"] and console.is_terminal:
        from securebench.cli.views.live import LiveSink

        live = LiveSink(console)
        stack.callback(live.close)
        sinks.append(live)
    elif not flags["quiet"]:
        sinks.append(PlainSink(echo))
    if flags["show_command_output"]:
        sinks.append(CommandOutputSink(echo))
    if flags["show_agent_output"]:
        sinks.append(AgentOutputSink(echo))
    return sinks


def _report(summary: TesterRunSummary, flags: dict[str, Any]) -> None:
    """Print the result of the run, and what to do next."""
    for problem in summary.problems:
        complain(problem)
    if flags["as_json"]:
        click.echo(json.dumps(summary.to_json(), indent=2))
    else:
        from securebench.cli.views.summary import print_summary

        print_summary(console_for(stderr=False), summary)
    if left := summary.total.not_run + summary.errors:
        noun = "trial" if summary.total.trials > 1 else "task"
        click.echo(
            f"{counted(left, noun)} without a verdict. To resume, run:\n"
            f"  {resume_command(sys.argv[1:], spent_budget(summary))}",
            err=True,
        )


def spent_budget(summary: TesterRunSummary) -> float | None:
    """Return the run's budget in US dollars if the run has reached it, otherwise ``None``."""
    from securebench.results.summary import RunEnd

    return summary.budget_usd if summary.ending is RunEnd.OUT_OF_BUDGET else None


def resume_command(arguments: list[str], spent_usd: float | None = None) -> str:
    """Return the command that resumes a run that was started with ``arguments``.

    If the run has spent its budget of ``spent_usd``, the command has a budget twice as large.
    """
    again = [*arguments, *([] if "--resume" in arguments else ["--resume"])]
    if spent_usd is not None:
        budget = [place for place, given in enumerate(again) if given.partition("=")[0] == "--budget-usd"]
        for place in reversed(budget):
            del again[place : place + (1 if "=" in again[place] else 2)]
        again = [*again, "--budget-usd", f"{2 * spent_usd:g}"]
    return shlex.join(["securebench", *again])


def console_for(*, stderr: bool) -> Console:
    """Return a console for standard error or standard output."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def _ignore(_text: str) -> None:
    """Print nothing, for ``--quiet``."""


@contextmanager
def terminal_may_be_gone() -> Iterator[None]:
    """Ignore errors of writing to a terminal that was closed: the run itself has finished."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, until the run installs its own handlers."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
