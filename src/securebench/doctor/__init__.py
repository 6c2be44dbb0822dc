"""What this machine can do for sandboxes, what is weaker or missing, and the command that mends it."""

from securebench.doctor.examination import examine
from securebench.doctor.model import Finding, Report, State

__all__ = ["Finding", "Report", "State", "examine"]
