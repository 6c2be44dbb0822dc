"""The process that draws plots."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from typing import Any

import pytest

from securebench.report import plots, renderer
from securebench.report.renderer import Renderer
from securebench.results.statistics import Estimate, Interval

PLOT: dict[str, Any] = {"mark": "bar", "data": {"values": [{"a": 1}]}, "encoding": {"x": {"field": "a"}}}


def _pid(plots: Renderer) -> int:
    assert plots._child is not None
    return plots._child.pid


def test_a_renderer_that_dies_is_started_again() -> None:
    """Some input crashes the process. Then one plot is missing, and a new process draws the next plot."""
    with closing(Renderer()) as plots:
        plots.start()
        os.kill(_pid(plots), signal.SIGKILL)
        assert plots.draw(PLOT) is None
        assert "<svg" in (plots.draw(PLOT) or "")


def test_what_is_no_plot_is_missing() -> None:
    """An invalid plot is left out, and the next valid plot is drawn."""
    with closing(Renderer()) as plots:
        assert plots.draw({"mark": 3, "data": []}) is None
        assert plots.draw(PLOT) is not None


@pytest.mark.parametrize("name", ["constructor", "toString", "__proto__", "hasOwnProperty"])
def test_a_name_that_every_object_of_javascript_has_is_a_label(name: str) -> None:
    """A plot shows all its groups, even if one has the name of a property that all JavaScript objects have."""
    rate = Estimate(0.5, Interval(0.4, 0.6), 10)
    plot = str(plots.pass_rates([("codex", rate), (name, rate)]))
    assert "codex" in plot
    assert name in plot


def test_the_renderer_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the renderer cannot start, plots are left out and no error is raised."""
    monkeypatch.setattr(renderer, "_SITE", "/nowhere")
    with closing(Renderer()) as plots:
        assert plots.draw(PLOT) is None
