"""``securebench compare --html``: one self-contained page."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Final

from securebench.report.pages import render
from securebench.results.comparison import names_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from securebench.results.comparison import Comparison

_SHOWN: Final = 1000
"""Task ids in a list."""


def write_comparison(groups: Mapping[str, Sequence[Comparison]], file: IO[str]) -> None:
    """Write the page of the comparisons of each benchmark. It follows the same policy as a report."""
    names = {key: name for pairs in groups.values() for key, name in names_of(pairs).items()}
    values = {"groups": groups, "name_of": lambda side: names[id(side)], "shown": _SHOWN}
    file.writelines(render("compare.html", **values, is_live=False))
