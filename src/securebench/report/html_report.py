"""``securebench report`` and ``securebench compare --html``: one self-contained page each."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Final

from securebench.errors import StorageError
from securebench.garbage import rare_collections
from securebench.report.pages import render
from securebench.report.plots import RENDERER
from securebench.report.run_view import comparison, view_of
from securebench.results.comparison import names_of
from securebench.results.suite import read_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from securebench.report.run_view import RunView
    from securebench.results.comparison import Comparison

_SHOWN: Final = 1000
"""Maximum number of task ids in each list on a comparison page."""


def report_views(directories: Sequence[Path], *, with_detail: bool = True) -> list[RunView]:
    """Read the runs in ``directories``, including all runs of a suite.

    Raises :class:`ConfigError` for a run that is missing or damaged.
    """
    runs = read_all(directories)
    return [view_of(run, number, with_detail=with_detail, share=len(runs)) for number, run in enumerate(runs, start=1)]


def report_page(views: Sequence[RunView], *, is_live: bool = False) -> Iterator[str]:
    """Yield the parts of a page about all ``views``. If there are several, the page starts by comparing them."""
    figure = comparison(views) if len(views) > 1 else None
    return render("report.html", views=views, comparison=figure, is_live=is_live)


@rare_collections()
def write_report(directories: Sequence[Path], output: Path) -> None:
    """Write the report of the runs in ``directories`` to ``output``, replacing it as a whole.

    Raises :class:`ConfigError` for a run that is missing or damaged, and :class:`StorageError`.
    """
    RENDERER.start()
    views = report_views(directories)
    partial = output.with_name(f".{output.name}.partial")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("w", encoding="utf-8") as file:
                file.writelines(report_page(views))
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        hint = "choose another file with --output"
        raise StorageError(f"cannot write {output}: {error.strerror or error}", hint=hint) from error


def write_comparison(groups: Mapping[str, Sequence[Comparison]], file: IO[str]) -> None:
    """Write one page with the comparisons for every benchmark. It has the Content-Security-Policy of a report."""
    names = {key: name for pairs in groups.values() for key, name in names_of(pairs).items()}
    values = {"groups": groups, "name_of": lambda side: names[id(side)], "shown": _SHOWN}
    file.writelines(render("compare.html", **values, is_live=False))
