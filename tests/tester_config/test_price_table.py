"""Price tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.agents.catalogue import PROGRAMS
from securebench.errors import ConfigError
from securebench.money import TokenPrices
from securebench.tester_config import Prices, own_price_table, read_price_table

if TYPE_CHECKING:
    from pathlib import Path


def test_a_table_is_read(tmp_path: Path) -> None:
    """A table is read. Cached tokens without a price have the price of other input tokens."""
    path = tmp_path / "prices.yaml"
    path.write_text('date: "2026-11-23"\nmodels:\n  m/1: {input: 0.25, output: 2}\n')
    table = read_price_table(path)
    assert (table.date, table.models) == ("2026-11-23", {"m/1": Prices(input=0.25, output=2)})
    exact = TokenPrices(
        input=250_000, cached_input=250_000, cache_write=250_000, cache_write_1h=250_000, output=2 * 10**6
    )
    assert table.models["m/1"].exact() == exact


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("date: 2026-11-23\nmodels: {}\n", "yaml-value", (1, 7)),
        ('date: "23.11.2026"\nmodels: {}\n', "field-value", (1, 7)),
        ('date: "2026-11-23"\nmodels:\n  m: {input: -1, output: 2}\n', "field-value", (3, 14)),
        ('date: "2026-11-23"\nmodels:\n  m: {input: 1}\n', "field-missing", (3, 6)),
        ('date: "2026-11-23"\nmodels:\n  m: {input: 1, output: 2, cached: 1}\n', "field-unknown", (3, 28)),
        (
            'date: "2026-11-23"\nmodels:\n  m: {input: 1, output: 2}\n  m: {input: 1, output: 2}\n',
            "key-duplicate",
            (4, 3),
        ),
    ],
)
def test_a_mistake_is_reported_at_its_place(tmp_path: Path, text: str, code: str, place: tuple[int, int]) -> None:
    """A mistake in a price table is reported with its code, line and column."""
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_price_table(path)
    (problem,) = raised.value.problems
    assert problem.location
    assert (problem.code, problem.location.line, problem.location.column) == (code, *place)


def test_our_own_table_has_only_models_that_the_pinned_programs_know() -> None:
    """Each model in the built-in table is known to a pinned program, is no alias, and has a price for cached input."""
    for name, prices in own_price_table().models.items():
        assert any(program.knows_model(program.pinned, name) for program in PROGRAMS.values()), name
        assert "-" in name
        assert prices.cached_input is not None
