"""Plots as SVG, drawn by Vega-Lite. Colors are CSS variables of the page, so that they follow light and dark mode.

Each function that draws a plot returns ``None`` if the plot has nothing to show or cannot be drawn.
"""

from __future__ import annotations

import atexit
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from markupsafe import Markup

from securebench.printable import printable_line
from securebench.report.renderer import Renderer
from securebench.results.records.record import VerificationStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from securebench.report.totals import OutcomeGroup
    from securebench.results.statistics import Estimate

_WIDTH: Final = 340
_MAX_POINTS: Final = 400
MAX_BARS: Final = 20
"""Maximum number of groups in a plot."""
_LABEL: Final = 28
"""Maximum characters of a label. Vega reserves room for the longest label."""

_OF_EVERY_OBJECT: Final = frozenset(
    ("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf")
)

_ORDER: Final = (
    VerificationStatus.PASSED,
    VerificationStatus.FAILED,
    VerificationStatus.ERROR,
    VerificationStatus.PENDING,
)

_SVG: Final = "{http://www.w3.org/2000/svg}"
_ELEMENTS: Final = frozenset({f"{_SVG}{name}" for name in ("svg", "g", "path", "line", "rect", "text", "tspan")})
_UNSAFE_ATTRIBUTES: Final = frozenset({"href", "style", "id", "class"})

RENDERER: Final = Renderer()
"""Draws the plots of all reports of this process."""
atexit.register(RENDERER.close)

_CONFIG: Final[Mapping[str, Any]] = {
    "font": "system-ui, sans-serif",
    "padding": {"left": 20, "top": 4, "right": 8, "bottom": 4},  # a browser's font may be wider than Vega's
    "aria": False,  # the page also shows the numbers as text
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "labelLimit": 140,
    },
    "legend": {
        "labelColor": "var(--muted)",
        "orient": "top",
        "title": None,
        "labelFontSize": 11,
        "symbolType": "square",
    },
}


def _outcome_colour(values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the colors of outcomes as a Vega-Lite encoding. The legend shows only outcomes that occur."""
    present = {value["outcome"] for value in values}
    names = [status.value for status in _ORDER if status.value in present]
    return {"field": "outcome", "type": "nominal", "scale": {"domain": names, "range": [f"var(--{n})" for n in names]}}


def pass_rates(groups: Sequence[tuple[str, Estimate | None]]) -> Markup | None:
    """Return a plot of the pass rates of the first :data:`MAX_BARS` groups; ``None`` if there are no pass rates.

    The plot also shows the 95 % intervals.
    """
    values = [
        {
            "group": _label(name),
            "rate": estimate.value,
            "low": estimate.interval.low,
            "high": estimate.interval.high,
        }
        for name, estimate in groups[:MAX_BARS]
        if estimate
    ]
    y = {"field": "group", "type": "nominal", "sort": None, "title": None}
    axis = {"format": ".0%", "tickCount": 5}
    scale = {"domain": [0, 1]}
    layers = [
        {
            "mark": {"type": "rule", "color": "var(--accent)", "strokeWidth": 3, "opacity": 0.5},
            "encoding": {
                "x": {"field": "low", "type": "quantitative", "scale": scale, "axis": axis, "title": "pass rate"},
                "x2": {"field": "high"},
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 70, "color": "var(--accent)", "opacity": 1},
            "encoding": {"x": {"field": "rate", "type": "quantitative"}},
        },
    ]
    return _drawn({"height": {"step": 26}, "encoding": {"y": y}, "layer": layers}, values)


def outcomes(groups: Sequence[OutcomeGroup]) -> Markup | None:
    """Return stacked bars: trials by outcome for the first :data:`MAX_BARS` groups; ``None`` without trials."""
    values = [
        {"group": _label(group.name), "outcome": status.value, "trials": group.outcomes[status], "order": order}
        for group in groups[:MAX_BARS]
        for order, status in enumerate(_ORDER)
        if group.outcomes[status]
    ]
    spec = {
        "height": {"step": 26},
        "mark": {"type": "bar", "height": 14},
        "encoding": {
            "y": {"field": "group", "type": "nominal", "sort": None, "title": None},
            "x": {
                "field": "trials",
                "type": "quantitative",
                "title": "trials",
                "axis": _whole_numbers(max((group.trials for group in groups), default=0)),
            },
            "color": _outcome_colour(values),
            "order": {"field": "order", "type": "quantitative"},
        },
    }
    return _drawn(spec, values)


def histogram(amounts: Sequence[tuple[VerificationStatus, float]], unit: str, number_format: str) -> Markup | None:
    """Return a histogram of ``amounts`` on a logarithmic scale; ``None`` if no amount is above 0.

    ``number_format`` is a format of D3: ``~s`` writes 20k, and ``~g`` writes 0.05 where ``~s`` would write 50m.
    """
    positive = [(status, amount) for status, amount in amounts if amount > 0]
    if not positive:
        return None
    per_decade = 8
    counts = Counter((status, math.floor(math.log10(amount) * per_decade)) for status, amount in positive)
    bins = Counter[int]()
    for (_, bin_), number in counts.items():
        bins[bin_] += number
    values = [
        {
            "outcome": status.value,
            "from": 10 ** (bin_ / per_decade),
            "to": 10 ** ((bin_ + 1) / per_decade),
            "trials": number,
            "order": _ORDER.index(status),
        }
        for (status, bin_), number in sorted(counts.items())
    ]
    spec = {
        "height": 150,
        "mark": {"type": "bar", "binSpacing": 1},
        "encoding": {
            "x": {
                "field": "from",
                "type": "quantitative",
                "bin": {"binned": True},
                "scale": {"type": "log", "nice": False},
                "title": unit,
                "axis": {"tickCount": 5, "format": number_format, "grid": False, "labelOverlap": True},
            },
            "x2": {"field": "to"},
            "y": {
                "field": "trials",
                "type": "quantitative",
                "stack": "zero",
                "title": "trials",
                "axis": _whole_numbers(max(bins.values())),
            },
            "color": _outcome_colour(values),
            "order": {"field": "order", "type": "quantitative"},
        },
    }
    return _drawn(spec, values)


def cumulative(ends: Iterable[tuple[float, bool]]) -> Markup | None:
    """Return a plot of the number of verdicts and passes over time; ``None`` for fewer than two verdicts.

    ``ends``: for each verdict, the seconds since the run began, and whether it is a pass.
    """
    points, passed = [(0.0, 0, 0)], 0
    for number, (seconds, is_pass) in enumerate(sorted(ends), start=1):
        passed += is_pass
        points.append((seconds, number, passed))
    if len(points) < 3:  # noqa: PLR2004 - one verdict makes no curve
        return None
    every = max(1, len(points) // _MAX_POINTS)
    kept = [*points[:-1:every], points[-1]]
    seconds_per, unit = _time_unit(points[-1][0])
    values = [
        {"time": seconds / seconds_per, "trials": number, "line": line}
        for seconds, scored, passes in kept
        for line, number in (("verdicts", scored), ("passes", passes))
    ]
    spec = {
        "height": 150,
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        "encoding": {
            "x": {
                "field": "time",
                "type": "quantitative",
                "title": f"{unit} since the run began",
                "axis": {"tickCount": 5, "grid": False},
            },
            "y": {
                "field": "trials",
                "type": "quantitative",
                "title": "trials",
                "axis": _whole_numbers(len(points) - 1),
            },
            "color": {
                "field": "line",
                "type": "nominal",
                "scale": {"domain": ["passes", "verdicts"], "range": ["var(--passed)", "var(--muted)"]},
            },
        },
    }
    return _drawn(spec, values)


def _whole_numbers(largest: int) -> dict[str, Any]:
    """Return an axis for 0 to ``largest`` trials, with ticks only at whole numbers."""
    ticks = max(1, min(4, largest))  # with more than ``largest`` ticks, some would mark fractions of a trial
    return {"tickCount": ticks, "format": "~s"}


def _time_unit(seconds: float) -> tuple[float, str]:
    for size, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return size, unit
    return 1.0, "seconds"


def _label(name: str) -> str:
    """Return a label without control characters, because they make vl-convert abort the process.

    Vega looks labels up in JavaScript objects. Names such as ``constructor`` exist in every object, and a plot with
    such a label would be empty. An invisible character at the end of the label makes it a different name.
    """
    shown = printable_line(name[:_LABEL])
    if shown in _OF_EVERY_OBJECT or shown.startswith("__"):
        return f"{shown}\u2060"
    return shown if len(name) <= _LABEL else f"{shown[: _LABEL - 1]}…"


def _drawn(spec: Mapping[str, Any], values: list[dict[str, Any]]) -> Markup | None:
    """Return ``spec`` with ``values`` as SVG, or ``None`` if there are no values or the plot cannot be drawn."""
    if not values:
        return None
    complete = {"width": _WIDTH, "background": None, "config": _CONFIG, "data": {"values": values}, **spec}
    svg = RENDERER.draw(complete)
    return None if svg is None else checked_svg(svg)


def checked_svg(text: str) -> Markup:
    """Return the SVG ``text`` without CSS classes. Raises ``ValueError`` if it has more than shapes and text.

    Labels of a plot come from a pack or an agent. Vega escapes them, but this function does not rely on that.
    """
    ET.register_namespace("", _SVG[1:-1])
    root = ET.fromstring(text)  # noqa: S314 - written by vl-convert, without entities
    for element in root.iter():
        if element.tag not in _ELEMENTS:
            raise ValueError(f"unexpected element in a plot: {element.tag}")
        element.attrib.pop("class", None)
        for name in element.attrib:
            if name in _UNSAFE_ATTRIBUTES or name.startswith(("on", "{")):
                raise ValueError(f"unexpected attribute in a plot: {name}")
    root.set("role", "img")
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - checked above
