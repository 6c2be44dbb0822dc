"""``securebench verify-run``: check that a run is complete and unchanged."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.audit.run.report import RunCheck, RunReport
    from securebench.audit.run.suite import SuiteReport
    from securebench.audit.run.verify import Evidence

_COLOURS: Final[Mapping[str, str]] = {"ok": "green", "not checked": "yellow", "FAILED": "red"}

EXAMPLES: Final = """\b
Examples:
  securebench verify-run results
  securebench verify-run results.tar.zst --pack my-pack --key author.pub
"""


@click.command(name="verify-run", short_help="Check that a run directory is complete and unchanged.", epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--pack", type=click.Path(path_type=Path), help="Check that the run was made with this pack.")
@click.option(
    "--tasks", type=click.Path(path_type=Path), help="The tasks file, if it is not tasks.jsonl next to the manifest."
)
@click.option(
    "--commitment-key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The run's commitment key, to compare hidden content, too.  [default: commitment.key in DIR, if any]",
)
@click.option(
    "--key",
    metavar="KEY",
    type=click.Path(path_type=Path),
    help="Check that this public key signed the run, or the suite and its runs.",
)
@click.option(
    "--identity",
    metavar="NAME",
    help="Check that this identity signed the run, or the suite and its runs, through Sigstore.",
)
@click.option("--issuer", metavar="URL", help="The OIDC issuer of that identity.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(directory: Path, *, as_json: bool, **options: Any) -> None:
    """Check that the run in DIR is complete and unchanged, and print a line for each check.

    DIR is the directory of a run or a suite, or a bundle, which is a file that 'securebench bundle' made. The command
    only reads files: it needs no network and no sandboxes, and works on any machine.

    Exit codes: 0 no check failed; 1 DIR or a file that an option names cannot be used; 2 wrong usage. Otherwise the
    smallest code of the checks that failed: 10 damaged files; 11 the chain of records; 12 the closing of the run; 13
    candidates; 14 contradictions; 15 the pack; 16 the signature; 17 a run that was not closed; 18 an older format.
    """
    from securebench.audit.run.bundle_file import require_exact
    from securebench.audit.run.report import CheckKind, RunReport

    evidence = _evidence(**options)
    with _opened(directory) as root:
        report = _report(root, evidence)
        code = report.exit_code
        if root != directory and code in {0, CheckKind.CLOSED}:
            require_exact(directory, root)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    elif isinstance(report, RunReport):
        _print_run(report)
    else:
        _print_suite(report)
    sys.exit(code)


def _evidence(
    pack: Path | None,
    tasks: Path | None,
    commitment_key: Path | None,
    key: Path | None,
    identity: str | None,
    issuer: str | None,
) -> Evidence:
    """Return what to check the run against.

    Raises :class:`ConfigError` for a pack or a key that cannot be used, and ``click.UsageError`` if an option needs
    another one.
    """
    from securebench.audit.run.verify import Evidence
    from securebench.cli.pack_argument import load_pack
    from securebench.cli.signing_options import passphrase_of
    from securebench.results.records.commitment import Commitment
    from securebench.signing.key_files import load_public
    from securebench.signing.sigstore_bundle import SigstoreIdentity

    if pack is None and (tasks or commitment_key):
        raise click.UsageError("--tasks and --commitment-key need --pack PACK")
    if bool(identity) is not bool(issuer):
        raise click.UsageError("--identity and --issuer must be given together")
    return Evidence(
        pack=load_pack(pack, tasks) if pack else None,
        commitment=Commitment.read_file(commitment_key) if commitment_key else None,
        public_key=load_public(key, passphrase_of(key, None)) if key else None,
        identity=SigstoreIdentity(identity, issuer) if identity and issuer else None,
    )


@contextmanager
def _opened(path: Path) -> Iterator[Path]:
    """Yield the directory to check: ``path``, or the unpacked content of a bundle."""
    from securebench.audit.run.bundle_file import unpacked_bundle

    if path.is_dir():
        yield path
    else:
        with unpacked_bundle(path) as directory:
            yield directory


def _report(directory: Path, evidence: Evidence) -> RunReport | SuiteReport:
    from securebench.audit.run.suite import verify_suite
    from securebench.audit.run.verify import verify_run
    from securebench.results.suite import read_suite

    suite = read_suite(directory)
    return verify_run(directory, evidence) if suite is None else verify_suite(directory, suite, evidence)


def _print_checks(checks: Sequence[RunCheck]) -> None:
    """Print a line for each check, in columns on a terminal and with tabs elsewhere, and below it what is wrong."""
    from securebench.printable import printable_line

    is_terminal = sys.stdout.isatty()
    for check in checks:
        state, name, text = check.state.value, check.name.replace("_", " "), printable_line(check.summary)
        if is_terminal:
            click.echo(f"{click.style(f'{state:<12}', fg=_COLOURS[state])} {name:<18} {text}")
        else:
            click.echo(f"{state}\t{name}\t{text}")
        for problem in check.problems:
            click.echo(f"    {printable_line(str(problem))}")
        if more := check.found - len(check.problems):
            click.echo(f"    ... and {more} more")


def _print_run(report: RunReport) -> None:
    """Print the checks of a run, and the conclusion from them."""
    from securebench.printable import printable_line

    _print_checks(report.checks)
    click.echo(printable_line(_verdict(report)))


def _print_suite(report: SuiteReport) -> None:
    """Print the checks of each run, the checks of the suite itself, and the conclusion from all of them."""
    from securebench.printable import printable_line

    for path, run in report.runs.items():
        click.echo(click.style(printable_line(path), bold=True))
        _print_run(run)
    click.echo(click.style("suite.json", bold=True))
    _print_checks(report.checks)
    click.echo(printable_line(_suite_verdict(report)))


def _suite_verdict(report: SuiteReport) -> str:
    from securebench.audit.run.report import CheckKind

    if report.exit_code == CheckKind.CLOSED:
        return "The suite is not complete: at least one run was not started, or is not closed."
    if report.exit_code:
        return _failure("suite", report.exit_code)
    if report.signed_by:
        return f"The suite has exactly the runs that {report.signed_by} signed."
    return (
        "Each run was checked alone. This does not show whether runs were removed from the suite, or added to it. To "
        "find out, check a signature with --key or --identity."
    )


def _verdict(report: RunReport) -> str:
    """Return what the checks together show, and what they do not."""
    from securebench.audit.run.report import CheckKind

    if report.exit_code == CheckKind.CLOSED:
        return "The run is not complete: nothing is wrong so far, but records may be missing at its end."
    if report.exit_code:
        return _failure("run", report.exit_code)
    if report.signed_by:
        return f"Nothing was changed or removed since {report.signed_by} signed the run."
    return (
        "All files agree with each other. This does not show who made the run: anyone who had the directory could have "
        "rewritten it with different verdicts. To find out, check a signature with --key or --identity."
    )


def _failure(what: str, exit_code: int) -> str:
    """Return the conclusion to print after a check failed. ``what`` is ``run`` or ``suite``."""
    from securebench.audit.run.report import CheckKind

    if exit_code == CheckKind.FORMAT:
        return f"The {what} cannot be verified: it has files in an older format."
    return f"Do not use this {what} as evidence."
