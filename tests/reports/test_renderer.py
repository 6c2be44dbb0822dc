"""The process that draws plots."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from typing import TYPE_CHECKING, Any

from securebench.report import renderer
from securebench.report.renderer import Renderer

if TYPE_CHECKING:
    import pytest

PLOT: dict[str, Any] = {"mark": "bar", "data": {"values": [{"a": 1}]}, "encoding": {"x": {"field": "a"}}}


def _pid(plots: Renderer) -> int:
    assert plots._child is not None
    return plots._child.pid


def test_a_renderer_that_dies_is_started_again() -> None:
    """One plot is missing: the engine aborts its process on some input."""
    with closing(Renderer()) as plots:
        plots.start()
        os.kill(_pid(plots), signal.SIGKILL)
        assert plots.draw(PLOT) is None
        assert "<svg" in (plots.draw(PLOT) or "")


def test_what_is_no_plot_is_missing() -> None:
    """An error of the engine is not one of the report."""
    with closing(Renderer()) as plots:
        assert plots.draw({"mark": 3, "data": []}) is None
        assert plots.draw(PLOT) is not None


def test_the_renderer_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report without plots is better than none."""
    monkeypatch.setattr(renderer, "_SITE", "/nowhere")
    with closing(Renderer()) as plots:
        assert plots.draw(PLOT) is None
