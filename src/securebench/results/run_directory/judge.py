"""The judge model of a run, as ``run.json`` and the records describe it, and how well it agrees with known grades."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securebench.results.records.usage import read_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.resources import JsonValue
    from securebench.results.records.usage import Usage
    from securebench.results.run_directory.header import RunHeader


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """The number of responses by known grade and verdict. ``false_pass`` counts passes that should have failed."""

    true_pass: int
    false_pass: int
    true_fail: int
    false_fail: int

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool]]) -> JudgeAgreement:
        """Count ``pairs``. Each pair is the known grade and the verdict of one response, each true for a pass."""
        seen = Counter(pairs)
        return cls(seen[True, True], seen[False, True], seen[False, False], seen[True, False])

    @property
    def items(self) -> int:
        """The number of responses."""
        return self.true_pass + self.false_pass + self.true_fail + self.false_fail

    @property
    def agreement(self) -> float:
        """The share of responses with the right verdict."""
        return (self.true_pass + self.true_fail) / self.items

    @property
    def kappa(self) -> float:
        """Cohen's kappa: 1 for full agreement, 0 for agreement by chance, negative for less than that.

        J. Cohen, "A coefficient of agreement for nominal scales", 1960.
        """
        known, passed = self.true_pass + self.false_fail, self.true_pass + self.false_pass
        chance = (known * passed + (self.items - known) * (self.items - passed)) / self.items**2
        return 1.0 if chance == 1 else (self.agreement - chance) / (1 - chance)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the counts, the agreement and kappa, for ``run.json``."""
        return {
            "items": self.items,
            "true_pass": self.true_pass,
            "false_pass": self.false_pass,
            "true_fail": self.true_fail,
            "false_fail": self.false_fail,
            "agreement": round(self.agreement, 4),
            "kappa": round(self.kappa, 4),
        }

    def __str__(self) -> str:
        right = self.true_pass + self.true_fail
        return f"agrees with {right} of {self.items} known grades, kappa {self.kappa:.2f}"


def read_agreement(found: Any) -> JudgeAgreement:
    """Return the agreement in ``run.json``. Raises ``ValueError`` if it is invalid or contradicts itself."""
    names = ("true_pass", "false_pass", "true_fail", "false_fail")
    if not isinstance(found, dict) or any(type(found.get(name)) is not int or found[name] < 0 for name in names):
        raise ValueError("a calibration of the judge has missing or invalid counts")
    agreement = JudgeAgreement(**{name: found[name] for name in names})
    if not agreement.items or agreement.to_json() != found:
        raise ValueError("the agreement or kappa in a calibration of the judge does not follow from its counts")
    return agreement


@dataclass(frozen=True, slots=True)
class JudgeSummary:
    """The judge of a run: its identity, its agreement with known grades if it was calibrated, and its usage."""

    identity: Mapping[str, JsonValue]
    calibration: JudgeAgreement | None
    usage: Usage

    def to_json(self) -> dict[str, JsonValue]:
        """Return the judge as JSON."""
        calibration = self.calibration.to_json() if self.calibration else None
        return {**self.identity, "calibration": calibration, "usage": self.usage.to_json()}

    def __str__(self) -> str:
        agreed = str(self.calibration) if self.calibration else "not calibrated"
        cost = "" if self.usage.cost_usd is None else f", ${self.usage.cost_usd:.2f}"
        tokens = f"{self.usage.input_tokens:,} tokens in, {self.usage.output_tokens:,} out{cost}"
        return f"{self.identity.get('model')} ({self.identity.get('dialect')}): {agreed}; {tokens}"


def judge_of(header: RunHeader, usage: Usage) -> JudgeSummary | None:
    """Return the judge of a run; ``None`` if the run has no judge. ``usage`` is the judge's usage in the records."""
    identity = header.decisive.get("judge")
    if not isinstance(identity, dict):
        return None
    checks = [found for check in judge_checks(header) if (found := read_usage(check))]
    return JudgeSummary(identity, calibration_in(header), sum(checks, usage))


def judge_checks(header: RunHeader) -> list[Mapping[str, Any]]:
    """Return the provider checks that tested the judge model."""
    return [check for check in header.provider_checks if "judge" in check]


def calibration_in(header: RunHeader) -> JudgeAgreement | None:
    """Return the agreement of the run's judge with known grades, from the last check with a valid calibration.

    Return ``None`` if no check has a valid calibration.
    """
    for check in reversed(judge_checks(header)):
        judge = check["judge"]
        try:
            return read_agreement(judge.get("calibration") if isinstance(judge, dict) else None)
        except ValueError:
            continue
    return None
