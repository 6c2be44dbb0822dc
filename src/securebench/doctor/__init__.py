"""Checks of what this machine supports, and how to fix what is weaker or missing."""

from securebench.doctor.examination import examine
from securebench.doctor.model import Finding, Report, State

__all__ = ["Finding", "Report", "State", "examine"]
