"""The refusal reasons and troubles of a relay: their description in the reference, and the status of refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from securebench.egress.model import Trouble
from securebench.egress.relay.refusals import RefusedError, RelayRefusal

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


@pytest.mark.parametrize("reason", list(RelayRefusal))
def test_reasons_are_described(reason: RelayRefusal) -> None:
    """Each refusal reason is described in the reference."""
    assert f"`{reason.value}`" in (REFERENCE / "egress.md").read_text()


@pytest.mark.parametrize("trouble", list(Trouble))
def test_troubles_are_described(trouble: Trouble) -> None:
    """Each trouble is described in the reference."""
    assert f"| `{trouble.value}` |" in (REFERENCE / "relay.md").read_text()


@pytest.mark.parametrize("reason", list(RelayRefusal))
def test_programs_give_up_at_refusals(reason: RelayRefusal) -> None:
    """No refusal has a status after which agents retry for long: 401, 403, 408, 409 or 5xx."""
    status = RefusedError(reason, "why").status
    assert 400 <= status < 500
    assert status not in {401, 403, 408, 409}
