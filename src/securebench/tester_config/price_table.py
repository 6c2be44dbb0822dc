"""Price tables: what models cost, in a YAML file of the tester or in the one that comes with SecureBench."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from securebench.strict_input.faults import Problems
from securebench.strict_input.files import read_text
from securebench.strict_input.models import WireModel, fit, matching
from securebench.strict_input.yaml_text import MAX_YAML_BYTES, parse_yaml
from securebench.tester_config.fields import Model
from securebench.tester_config.settings import Prices

_OWN: Final = Path(__file__).with_name("prices.yaml")
_DATE: Final = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])")


class PriceTable(WireModel):
    """The prices of models by their exact names. ``date`` is the day on which they were looked up."""

    date: Annotated[str, matching(_DATE, "a date such as '2026-11-23'")]
    models: dict[Model, Prices]


def read_price_table(path: Path) -> PriceTable:
    """Return the price table in a file. Raises :class:`ConfigError` with the line and column of each problem."""
    text, _ = read_text(path, "price table", MAX_YAML_BYTES, follow=True)
    value, source, faults = parse_yaml(text, str(path))
    problems = Problems()
    problems.extend(faults, source)
    problems.raise_if_any()
    table, faults = fit(PriceTable, value)
    problems.extend(faults, source)
    problems.raise_if_any()
    assert table is not None  # otherwise a problem was raised above
    return table


@cache
def own_price_table() -> PriceTable:
    """Return the price table that comes with SecureBench."""
    return read_price_table(_OWN)
