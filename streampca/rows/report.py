"""Report on what admission did to the rows of a stream, for the curator."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field, replace

import numpy as np

from streampca.linalg.lattice import UNIT
from streampca.rows.admission import REASONS, Admission, Counts
from streampca.rows.people import People

#: Its records depend on raw rows. Python prints them on standard error unless the program configures it.
logger = logging.getLogger("streampca.curator")


def tell_curator(report: AdmissionReport) -> None:
    """Log what happened to the rows, as one record if there is advice. Not a warning, which could become an error."""
    if texts := report.warnings():
        logger.warning("%s (curator only)", " ".join(texts).removesuffix("."))


def _most(shares: dict[str, float], least: float) -> str:
    """Return the largest shares of at least a number, by name, in words."""
    worst = sorted((item for item in shares.items() if item[1] >= least), key=lambda item: -item[1])
    named = ", ".join(f"{name} {share:.1%}" for name, share in worst[:5])
    return named + (f" and {len(worst) - 5} more" if len(worst) > 5 else "")


@dataclass(frozen=True)
class AdmissionReport:
    """Summary of what admission did to the rows of a stream. Curator only: exact functions of raw rows.

    Attributes
    ----------
    rows : number of rows.
    zero_rows_by_reason : number of bad rows, which are absent from all sums, by the reasons that occurred.
    share_scaled : share of the rows that were longer than row_norm and were scaled onto it.
    share_clamped : share of the values of each feature that were outside its bounds, by name.
    ball_used : mean squared norm of the admitted rows, in units of row_norm**2. The noise is calibrated for 1.
    row_norm : the norm, which is public.
    share_missing : share of the cells of each feature that were missing, by name, over the rows that could be read.
    on_missing : what became of them.
    people, people_spent : number of people with a row that counts, or a vote, and of those whose budget is spent; with
        `Person.period`, of pairs of a person and a period. None without a unit, as the following ones.
    rows_full, rows_shrunk, rows_refused : number of rows that count in full, with a smaller weight, and not at all.
    mean_weight : mean weight of these rows; nan before the first.
    bad_rows : number of bad rows.

    Notes
    -----
    Shares and means are over the good rows after the warm-up; nan before the first.
    """

    rows: int
    zero_rows_by_reason: dict[str, int]
    share_scaled: float
    share_clamped: dict[str, float]
    ball_used: float
    row_norm: float = 1.0
    share_missing: dict[str, float] = field(default_factory=dict)
    on_missing: str = "bad"
    people: int | None = None
    people_spent: int | None = None
    rows_full: int | None = None
    rows_shrunk: int | None = None
    rows_refused: int | None = None
    mean_weight: float | None = None
    bad_rows: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bad_rows", sum(self.zero_rows_by_reason.values()))

    @classmethod
    def of(cls, admission: Admission, counts: Counts, rows: int, people: People | None = None) -> AdmissionReport:
        """Create the report on ``rows`` rows of ``people``, or with a row as the unit of privacy."""
        names = admission.features or tuple(f"feature {j}" for j in range(admission.n_features or 0))
        used = rows - counts.bad - counts.warmup or math.nan
        clamped = np.zeros(len(names)) if counts.clamped is None else counts.clamped
        shares = {} if admission.bounds is None else dict(zip(names, (clamped / used).tolist(), strict=True))
        zeroed = {reason: count for reason, count in zip(REASONS, counts.zeroed, strict=True) if count}
        gaps = np.zeros(len(names)) if counts.gaps is None else counts.gaps
        missing = gaps / (rows - sum(counts.zeroed[1:]) or math.nan)
        report = cls(
            rows, zeroed, counts.scaled / used, shares, counts.squares / UNIT / used, admission.row_norm,
            dict(zip(names, missing.tolist(), strict=True)), admission.on_missing,
        )  # fmt: skip
        if people is None:
            return report
        charged = people.full + people.shrunk + people.refused
        return replace(
            report, people=people.number, people_spent=people.spent, rows_full=people.full, rows_shrunk=people.shrunk,
            rows_refused=people.refused, mean_weight=people.weight / (charged or math.nan),
        )  # fmt: skip

    @property
    def is_clipped(self) -> bool:
        """True if more than 1 % of the rows were scaled, or of the values of a feature clamped."""
        return max([self.share_scaled, *self.share_clamped.values()]) > 0.01

    def warnings(self) -> list[str]:
        """Return sentences of advice. Curator only: they depend on raw rows."""
        found = []
        if self.zero_rows_by_reason:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.zero_rows_by_reason.items())
            found.append(f"{self.bad_rows} of {self.rows} rows could not be used and count for nothing ({reasons}).")
        if named := _most(self.share_missing, 0.01):
            remedy = (
                "on_missing='cell' keeps the other cells of these rows and corrects mean and components"
                if self.on_missing == "bad" else "the correction holds if cells are missing independently of values"
            )  # fmt: skip
            found.append(f"Cells are missing ({named}): {remedy}.")
        if named := _most(self.share_clamped, math.nextafter(0.01, 1.0)):
            found.append(
                f"Values outside their bounds were clamped ({named}): the components show the bounds more than the "
                "rows. Give these features wider public bounds."
            )
        if self.share_scaled > 0.01:
            found.append(
                f"{100.0 * self.share_scaled:.3g} % of rows are longer than row_norm={self.row_norm:g} and were "
                "scaled; the components are those of the scaled rows."
            )
        if self.mean_weight is not None and self.mean_weight < 0.5:
            found.append(
                f"Rows count with weight {self.mean_weight:.2g} on average: the budgets of {self.people_spent} of "
                f"{self.people} people are spent. A larger budget increases the noise as much as the weights."
            )
        if self.ball_used < 0.1:
            remedy = "tighter public bounds" if self.share_clamped else "a smaller row_norm"
            found.append(
                f"The rows use {self.ball_used:.2%} of the ball that the noise is calibrated for. Give {remedy}."
            )
        return found
