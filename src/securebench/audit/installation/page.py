"""The report of an audit as one self-contained HTML page, in the style of run reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.audit.installation.model import AuditOutcome
from securebench.report.pages import render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.audit.installation.model import AuditReport

_CLASSES: Final = {
    AuditOutcome.CONTAINED: "passed",
    AuditOutcome.NOT_CONTAINED: "failed",
    AuditOutcome.NOT_APPLICABLE: "pending",
    AuditOutcome.NOT_CHECKED: "pending",
}
"""The CSS class for each outcome. Run reports use the same classes for the statuses of tasks."""


def audit_page(report: AuditReport) -> Iterator[str]:
    """Yield the parts of the page. It has no script, and loads nothing."""
    return render("audit.html", report=report, classes=_CLASSES, is_live=False)
