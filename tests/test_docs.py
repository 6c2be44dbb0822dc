"""The documentation matches the code: names in the code are described, described names exist, and links work."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import securebench
from securebench.cli import COMMANDS, EXIT_DEFECT, EXIT_INTERRUPTED, EXIT_OUTPUT, cli
from securebench.cli.run_command import EXIT_BELOW, EXIT_BUDGET, EXIT_ERRORS
from securebench.errors import FailurePhase, FailureReason
from securebench.limits import Limits
from securebench.progress import EVENTS, Event, EventKind
from securebench.results.dataframe import COLUMNS
from securebench.results.records.usage import Usage
from securebench.results.summary import Counts, TesterRunSummary
from securebench.sandboxes.enforcement import ENFORCEABLE, DriverFeature
from securebench.strict_input.models import WireModel
from securebench.tester_config.model import RunConfig
from securebench.tester_config.settings import ProviderSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "securebench"
REFERENCE = ROOT / "docs" / "reference"
EMBED = ROOT / "docs" / "how-to" / "embed.md"
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))

NOT_CODES = {
    *(name for name in ENFORCEABLE if "-" in name),
    *DriverFeature,
    "2023-06-01",
    "apt-config",
    "apt-get",
    "ca-certificates",
    "ctrl-alt-del",
    "debian-archive-keyring",
    "docker-init",
    "force-unsafe-io",
    "held-outside-the-sandbox",
    "kernel-settings",
    "latin-1",
    "linux-arm64-musl",
    "linux-x64-musl",
    "linux-arm64",
    "linux-x64",
    "no-referrer",
    "no-store",
    "oci-layout",
    "packed-refs",
    "pytest-json-ctrf",
    "pytest-json-report",
    "same-origin",
    "securebench-gateway",
    "securebench-gateway-gone",
    "securebench-judge",
    "securebench-ray",
    "securebench-remove",
    "securebench-victim",
    "securebench-watch",
    "sk-ant-oat",
    "step-after",
    "swe-bench",
    "terminal-bench",
    "tini-static",
    "utf-8",
    "verifier-output",
    "verify-run",
    "system-err",
    "system-out",
    "us-ascii",
    "x-lane",
    "x-securebench-refusal",
}
"""Hyphenated strings in the source that are not error codes, such as programs, threads, restrictions, encodings."""

_CODE = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")
_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
_ANCHOR = re.compile(r"""<a [^>]*(?:id|name)=["']([^"']+)["']""")
_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_BACKTICKED = re.compile(r"`([^`\n]+)`")


@cache
def _text(page: Path) -> str:
    assert page.exists(), f"{page.relative_to(ROOT)} is not written"
    return page.read_text()


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Return the valid fragments of links to ``page``: its headings, as common renderers name them, and its anchors."""
    text = _FENCE.sub("", _text(page))
    headings = (
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in _HEADING.findall(text)
    )
    return frozenset((*headings, *_ANCHOR.findall(text)))


@cache
def _words(page: Path) -> frozenset[str]:
    """Return the words in backticks on ``page``. ``run.id`` gives the words ``run`` and ``id``."""
    quoted = _BACKTICKED.findall(_FENCE.sub("", _text(page)))
    return frozenset(word for text in quoted for word in re.findall(r"[\w-]+", text))


def _missing(page: Path, wanted: set[str], found: frozenset[str], what: str) -> str:
    names = "\n".join(f"    {name}" for name in sorted(wanted - found))
    return f"docs/reference/{page.name} lacks {what}:\n{names}"


@functools.cache
def _error_codes() -> dict[str, str]:
    """Return each string of the source that looks like an error code, and a file that contains it.

    Scripted providers and attacks are skipped: they have no error codes.
    """
    codes: dict[str, str] = {}
    others = {path for name in ("provider", "attacks") for path in SOURCE.glob(f"testing/{name}/**/*.py")}
    for path in sorted(set(SOURCE.rglob("*.py")) - others):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _CODE.fullmatch(node.value):
                codes.setdefault(node.value, str(path.relative_to(SOURCE)))
    return codes


def test_every_error_code_is_described() -> None:
    """Each error code has a heading or an anchor with its name in docs/reference/errors.md."""
    page = REFERENCE / "errors.md"
    codes = _error_codes()
    lacking = sorted(set(codes) - NOT_CODES - _anchors(page))
    assert not lacking, "docs/reference/errors.md lacks these codes (or NOT_CODES these words):\n" + "\n".join(
        f"    {code}  ({codes[code]})" for code in lacking
    )


def test_no_error_code_is_described_that_is_not_there() -> None:
    """An error code that was renamed or removed has no heading in docs/reference/errors.md."""
    described = {anchor for anchor in _anchors(REFERENCE / "errors.md") if _CODE.fullmatch(anchor)}
    headings = {re.sub(r"`", "", heading) for heading in _HEADING.findall(_text(REFERENCE / "errors.md"))}
    stale = (described & headings) - set(_error_codes())
    assert not stale, f"docs/reference/errors.md describes what no code uses: {sorted(stale)}"


def test_the_words_that_are_no_codes_are_still_used() -> None:
    """Each word in ``NOT_CODES`` still occurs in the source."""
    assert set(_error_codes()) >= NOT_CODES


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("failures.md", FailureReason),
        ("failures.md", FailurePhase),
        ("events.md", EventKind),
    ],
)
def test_every_word_of_a_closed_vocabulary_is_described(
    name: str, kind: type[FailureReason | FailurePhase | EventKind]
) -> None:
    """Each failure reason, phase and event has a heading or an anchor with its name."""
    page = REFERENCE / name
    wanted = {str(member) for member in kind}
    found = _anchors(page)
    assert wanted <= found, _missing(page, wanted, found, f"an anchor for each {kind.__name__}")


def test_the_events_page_lists_the_fields_of_each_event() -> None:
    """docs/reference/events.md lists the keys of the summary and the fields of each event, except common fields.

    The common fields are those that all events have.
    """
    text = _text(REFERENCE / "events.md")
    rows = re.findall(r'^\| <a id="(\w+)"></a>`\1` \|[^|]*\|(.*)\|$', text, re.MULTILINE)
    listed = {kind: re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", data)) for kind, data in rows}
    common = {one.name for one in fields(Event)}
    declared = {str(kind): sorted({one.name for one in fields(type_)} - common) for kind, type_ in EVENTS.items()}
    assert {kind: sorted(names) for kind, names in listed.items()} == declared
    summary = re.findall(r"^\| (`.*?) \|", _section(text, "The summary") or "", re.MULTILINE)
    full = TesterRunSummary(
        run_id="r",
        benchmark_id="b",
        agent="a",
        output_dir=Path("/o"),
        total=Counts(),
        families={},
        usage=Usage(input_tokens=1),
    )
    assert {key for cell in summary for key in re.findall(r"`(\w+)`", cell)} == full.to_json().keys()


@pytest.mark.parametrize("function", [securebench.load_config, securebench.run, securebench.read_run])
def test_the_arguments_of_the_public_functions_are_described(function: Callable[..., object]) -> None:
    """The table of each function in docs/how-to/embed.md lists its arguments in order, with their defaults."""
    section = _section(_text(EMBED), function.__name__) or ""
    listed = re.findall(r"^\| `(\w+)` \| `?(.*?)`? \|", section, re.MULTILINE)
    assert listed == [
        (name, "required" if one.default is one.empty else repr(one.default))
        for name, one in inspect.signature(function).parameters.items()
    ]


def test_the_columns_of_a_data_frame_are_described() -> None:
    """docs/how-to/embed.md lists the columns of ``to_dataframe`` in order. The method has no arguments."""
    assert list(inspect.signature(securebench.RecordedRun.to_dataframe).parameters) == ["self"]
    cells = re.findall(r"^\| (`.*?) \|", _section(_text(EMBED), "to_dataframe") or "", re.MULTILINE)
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == list(COLUMNS)


@pytest.mark.parametrize(
    ("names", "packages"),
    [
        (("tester-config.md", "suite.md"), ("tester_config",)),
        (("pack-format.md", "families.md"), ("benchmark_pack", "families")),
    ],
)
def test_every_field_of_a_file_format_is_described(names: tuple[str, ...], packages: tuple[str, ...]) -> None:
    """Each key of a file format is in backticks on one of the pages about the format."""
    wanted = {field for package in packages for field in _fields(package)}
    found = frozenset[str]().union(*(_words(REFERENCE / name) for name in names))
    assert wanted <= found, _missing(REFERENCE / names[0], wanted, found, "these keys, in backticks")


def test_documented_defaults_are_those_of_the_code() -> None:
    """The tables of the tester YAML give the defaults of limits, budgets and time-outs."""
    rows = re.findall(r"^\| `([\w.]+)`[^|]*\|(?:[^|]*\|)??\s*`?([\w.,]+)`? \|[^|]*\|$", _config_page(), re.MULTILINE)
    listed = {key: _number(default) for key, default in rows}
    settings = ProviderSettings(model="m")
    expected: dict[str, float | str] = {
        "max_workers": RunConfig("", Path()).max_workers,
        "timeout_seconds": settings.timeout_seconds,
        **dataclasses.asdict(Limits()),
        **{f"budget.{key}": value for key, value in settings.budget},
        **{f"provider_timeouts.{key}": value for key, value in settings.provider_timeouts},
    }
    assert {key: listed.get(key) for key in expected} == expected


def _config_page() -> str:
    """Return the page of the tester YAML, with the prefix ``run.`` removed from keys."""
    return _text(REFERENCE / "tester-config.md").replace("| `run.", "| `")


def _number(text: str) -> float | None:
    """Return ``text`` as a number, with sizes such as ``2g`` in bytes, or ``None`` if it is not a number."""
    match = re.fullmatch(r"([\d.]+)([kmg]?)", text.replace(",", ""))
    return float(match[1]) * 1024 ** " kmg".index(match[2] or " ") if match else None


def test_every_exit_code_is_described() -> None:
    """The table of exit codes lists exactly the codes of the command line, in order."""
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", _text(REFERENCE / "cli.md"), re.MULTILINE)]
    assert codes == [0, 1, 2, EXIT_ERRORS, EXIT_BELOW, EXIT_BUDGET, EXIT_DEFECT, EXIT_OUTPUT, EXIT_INTERRUPTED]


def _fields(package: str) -> set[str]:
    """Return the keys of all wire models in ``securebench.<package>``."""
    prefix = f"securebench.{package}"
    module = importlib.import_module(prefix)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{prefix}."):
        importlib.import_module(found.name)
    models = [model for model in _subclasses(WireModel) if f"{model.__module__}.".startswith(f"{prefix}.")]
    assert models, f"{prefix} has no model"
    return {info.alias or name for model in models for name, info in model.model_fields.items()}


def _subclasses(model: type[WireModel]) -> Iterator[type[WireModel]]:
    for subclass in model.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands below a group, or ``command`` if it is not a group, each with its full name."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from _commands(below, f"{path} {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_described(name: str) -> None:
    """docs/reference/cli.md has a section for each command, which names all its options and arguments."""
    top = cli.get_command(click.Context(cli), name)
    assert top is not None
    text = _text(REFERENCE / "cli.md")
    lacking = [
        line for path, command in _commands(top, f"securebench {name}") for line in _undescribed(text, path, command)
    ]
    assert not lacking, "docs/reference/cli.md lacks:\n" + "\n".join(f"    {line}" for line in lacking)


def _undescribed(text: str, path: str, command: click.Command) -> Iterator[str]:
    section = _section(text, path)
    if section is None:
        yield f"a section '{path}'"
        return
    for parameter in command.params:
        option = isinstance(parameter, click.Option)
        shown = max(parameter.opts, key=len) if option else parameter.human_readable_name.strip("[]")
        if not re.search(rf"(?<![\w-]){re.escape(shown)}(?![\w-])", section):
            yield f"{path}: {shown}"


def _section(text: str, title: str) -> str | None:
    """Return the part of ``text`` from the heading ``title`` to the next one, or ``None`` if ``title`` is missing."""
    start = next((match for match in _HEADING.finditer(text) if match[1].replace("`", "") == title), None)
    if start is None:
        return None
    end = _HEADING.search(text, start.end())
    return text[start.end() : end.start() if end else None]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link of a page leads to a file of the project, and its fragment to a heading or anchor there."""
    broken = []
    for link in _LINK.findall(_FENCE.sub("", _text(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or not target.is_relative_to(ROOT):
            broken.append(f"{link}: no such file")
        elif fragment and target.suffix == ".md" and fragment not in _anchors(target):
            broken.append(f"{link}: no such heading or anchor")
    assert not broken, f"broken links in {page.relative_to(ROOT)}:\n" + "\n".join(f"    {line}" for line in broken)


def test_every_restriction_is_described() -> None:
    """docs/reference/records.md lists each restriction that a driver may enforce, in the words of the messages."""
    section = _section(_text(REFERENCE / "records.md"), "What a driver enforced") or ""
    rows = re.findall(r"^\| `([a-z-]+)` \| ([^:|]+?)(?::[^|]*)? \|$", section, re.MULTILINE)
    assert dict(rows) == dict(ENFORCEABLE)


def test_every_field_of_a_record_is_described() -> None:
    """The table in docs/reference/records.md lists exactly the fields that a record may have."""
    from securebench.results.records.strict_record import FIELDS

    section = _section(_text(REFERENCE / "records.md"), "A record") or ""
    cells = re.findall(r"^\| (`[^|]*) \| [^|]* \| [^|]* \|$", section, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(FIELDS)


def test_each_format_of_records_is_described() -> None:
    """docs/reference/records.md lists each version up to the current one. Header and records have the same version."""
    from securebench.results.records.record import RECORD_VERSION
    from securebench.results.run_directory.header import HEADER_VERSION

    assert RECORD_VERSION == HEADER_VERSION
    formats = _text(REFERENCE / "records.md").partition("### Formats")[2].partition("\n## ")[0]
    assert [f"| {version} |" in formats for version in range(1, RECORD_VERSION + 2)] == [
        *[True] * RECORD_VERSION,
        False,
    ]


def test_the_version_is_the_same_everywhere() -> None:
    """The package and pyproject.toml have the same version."""
    assert f'version = "{securebench.__version__}"' in (ROOT / "pyproject.toml").read_text()
