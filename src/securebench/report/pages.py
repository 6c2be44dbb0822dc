"""Render pages from templates. Every value is escaped, and a policy lets a page use only its own style and script."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import jinja2
from markupsafe import Markup

from securebench import __version__
from securebench.plurals import counted
from securebench.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

_NONE: Final = "\N{EN DASH}"
_LEAST: Final = 0.001
_MINUTE: Final = 60
_DAY: Final = 24 * 3600


def render(template: str, **values: Any) -> Iterator[str]:
    """Yield the parts of the page rendered from ``values`` with ``template``, a file in ``templates/``."""
    environment = _environment()
    return environment.get_template(template).generate(version=__version__, **values)


def content_security_policy(*, is_live: bool = False) -> str:
    """Return the policy of a page: it may use only its own style.

    A live page may also run its own script and connect to its server.
    """
    live = f"script-src '{_hash(_asset('live.js'))}'; connect-src 'self'; " if is_live else ""
    style = f"style-src '{_hash(_asset('style.css'))}'"
    return f"default-src 'none'; {live}{style}; base-uri 'none'; form-action 'none'"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("securebench.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
        auto_reload=False,
    )
    filters = {"percent": percent, "points": points, "p_value": p_value, "counted": counted}
    environment.filters.update(**filters, duration=duration, amount=amount, money=money)
    environment.globals.update(
        style=Markup(_asset("style.css")),  # noqa: S704 - our own files
        script=Markup(_asset("live.js")),  # noqa: S704
        policy=content_security_policy,
    )
    return environment


def _visible(value: Any) -> Any:
    """Return a value of a template with its control and direction characters made visible."""
    return printable(value) if type(value) is str else value


@cache
def _asset(name: str) -> str:
    return (files("securebench.report") / "templates" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def percent(rate: float | None) -> str:
    """Return a rate between 0 and 1 as a percentage; a dash for ``None``."""
    return _NONE if rate is None else f"{rate:.1%}"


def points(difference: float) -> str:
    """Return a difference of two rates in percentage points, with its sign."""
    return f"{100 * difference:+.1f}"


def p_value(value: float) -> str:
    """Return a p-value with three decimals, or ``< 0.001``."""
    return f"{value:.3f}" if value >= _LEAST else f"< {_LEAST}"


def duration(seconds: float | None) -> str:
    """Return a duration with its two largest units, or in seconds below a minute; a dash for ``None``."""
    if seconds is None:
        return _NONE
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, part, name in ((_DAY, "d", 3600, "h"), (3600, "h", 60, "min"), (_MINUTE, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {name}"
    return f"{whole} s"


def amount(number: float | None) -> str:
    """Return a number as text; a dash for ``None``. Numbers from 10,000 have one decimal and a unit, such as 12.3 k."""
    if number is None:
        return _NONE
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1000 if unit == 'k' else size):.1f} {unit}"
    return f"{number:,.0f}"


def money(dollars: float | None) -> str:
    """Return an amount in US dollars; a dash for ``None``."""
    return _NONE if dollars is None else f"${dollars:,.2f}"
