"""``securebench reverify``: judge sealed candidates again."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from securebench.cli import EXIT_INTERRUPTED, complain
from securebench.cli.run_command import (
    EXIT_ERRORS,
    console_for,
    known_extension,
    signals_interrupt,
    sinks_for,
    terminal_may_be_gone,
)
from securebench.cli.signing_options import passphrase_option, sign_option, signer_of

if TYPE_CHECKING:
    from securebench.results.reverification import Reverification
    from securebench.tester_config import BenchmarkPaths, TesterConfig

EXIT_DIFFERENT: Final = 4
"""Exit code: at least one verdict differs."""

EXAMPLES: Final = """\b
Examples:
  securebench reverify results
  securebench reverify results --task 'django*' --driver docker
"""


@click.command(
    name="reverify", short_help="Judge the sealed candidates of a run again, without its agent.", epilog=EXAMPLES
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--task", multiple=True, metavar="GLOB", help="Judge only tasks whose id matches; may be repeated.")
@click.option("--driver", metavar="NAME", callback=known_extension, help="Use this driver instead of the run's.")
@click.option(
    "--pack",
    type=click.Path(path_type=Path),
    help="The pack of the run.  [default: the pack that --config names, else the path that the run used]",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="A tester YAML that configures each verifier or driver that is an extension.",
)
@click.option("-o", "--output-dir", type=click.Path(path_type=Path), help="Write here.  [default: DIR.reverified]")
@click.option("--resume", is_flag=True, help="Continue an earlier 'reverify' of the same run.")
@click.option("--workers", type=click.IntRange(min=1), help="Candidates to judge at once.  [default: 1]")
@click.option("--quiet", is_flag=True, help="Print no progress.")
@click.option("--show-verifier-output", is_flag=True, help="Show output of checkers and tests, redacted.")
@click.option(
    "--keep-verifier-output", is_flag=True, help="Keep output of checkers and tests in verifier-output/ of the new run."
)
@sign_option
@passphrase_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
@click.pass_context
def command(ctx: click.Context, /, directory: Path, **flags: Any) -> None:
    """Judge the sealed candidates of the run in DIR again, without its agent, and compare the verdicts.

    DIR is only read. The new verdicts are written to a new run directory. The pack must be the one that the run used.
    Differences in driver, image or versions are reported.

    Exit codes: 0 all verdicts are the same; 1 an error, such as a pack that differs; 2 wrong usage; 3 some trials were
    not judged again, or the new run has another problem; 4 some verdicts differ; 130 interrupted.
    """
    with signals_interrupt():
        result = _reverify(directory, flags)
    with terminal_may_be_gone():
        _report(result, as_json=flags["as_json"])
    ctx.exit(_exit_code(result))


def _reverify(directory: Path, flags: dict[str, Any]) -> Reverification:
    from securebench.cli.views.output import show_verifier_output
    from securebench.printable import printable
    from securebench.tester_run import RunOptions
    from securebench.tester_run.reverify import reverify

    console = console_for(stderr=True)

    def echo(line: str) -> None:
        console.print(printable(line), markup=False, soft_wrap=True)

    pack, tester = _inputs(flags["pack"], flags["config"])
    options = RunOptions(
        **{name: flags[name] for name in ("task", "driver", "output_dir", "resume", "workers", "keep_verifier_output")},
        show_verifier_output=partial(show_verifier_output, echo) if flags["show_verifier_output"] else None,
        sign=signer_of(flags["sign"], flags["passphrase_file"]),
        handle_signals=True,
        variables={},
        notify=(lambda _text: None) if flags["quiet"] else echo,
    )
    shown = {**flags, "show_command_output": False, "show_agent_output": False}
    with ExitStack() as stack:
        return reverify(directory, options, pack=pack, tester=tester, sinks=sinks_for(shown, console, echo, stack))


def _inputs(pack: Path | None, config: Path | None) -> tuple[BenchmarkPaths | None, TesterConfig | None]:
    """Return the paths of the given pack, and the content of the given tester YAML; ``None`` for what was not given.

    If only a tester YAML is given, the paths are those of its pack.
    """
    from securebench.cli.pack_argument import pack_files
    from securebench.tester_config import load_tester_config

    tester = load_tester_config(config) if config else None
    return pack_files(pack) if pack else tester.benchmark if tester else None, tester


def _report(result: Reverification, *, as_json: bool) -> None:
    for problem in result.summary.problems:
        complain(problem)
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=2))
        return
    from securebench.cli.views.reverify import print_result

    print_result(console_for(stderr=False), result)


def _exit_code(result: Reverification) -> int:
    from securebench.results.summary import RunEnd

    if result.summary.ending is RunEnd.INTERRUPTED:
        return EXIT_INTERRUPTED
    if result.verdicts.changed:
        return EXIT_DIFFERENT
    return EXIT_ERRORS if result.verdicts.unjudged or result.summary.problems else 0
