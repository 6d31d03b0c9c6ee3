"""Facts about releases, as terminals, notebooks, pages, reports and pictures show them.

Post-processing of releases, but for facts marked ``curator``, which are exact functions of raw rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee, percent_up
from streampca.regret.regret import RegretRecord
from streampca.release.clear import IN_RUN, LOOKS, ONE
from streampca.release.estimates import WIDE, Estimates
from streampca.release.release import Release, rows_summed
from streampca.rows.report import AdmissionReport
from streampca.views.plots import LARGE, heaviest, names_of

Cell = float | int | None


@dataclass(frozen=True)
class Fact:
    """One figure with its label. ``curator`` is True if it is an exact function of raw rows."""

    label: str
    value: str
    curator: bool = False


#: Components shown, and features listed.
COMPONENTS, FEATURES = 6, 24
#: Features up to which estimates are computed for every release that is shown during a run.
ESTIMATED = 200
_EIGENVALUES = tuple(f"value_{i}" for i in range(1, COMPONENTS + 1))
#: Label of the guarantee in short.
SPENT = "Privacy spent by all releases"
_ANGLES = tuple(f"angle_{i}" for i in range(1, COMPONENTS + 1))
#: The columns of `release_row`.
COLUMNS = ("t", *_EIGENVALUES, "noise", *_ANGLES)


# -- one release in figures ---------------------------------------------------------


def release_row(release: Release, before: Release | None) -> list[Cell]:
    """Return the figures of a release by `COLUMNS`: per row, None if absent, and angles in degrees to ``before``."""
    subspace, rows = release.subspace, rows_summed(release)
    cells: dict[str, Cell] = {"t": release.t}
    if release.eigenvalues is not None:
        cells |= zip(_EIGENVALUES, (release.eigenvalues / rows).tolist(), strict=False)
    if release.noise_std is not None and release.packed is not None:
        # The largest eigenvalue of the noise is near noise_std * sqrt(2 d).
        cells["noise"] = release.noise_std * math.sqrt(2.0 * release.n_features) / rows
    # The largest angle comes first, although principal angles are ascending.
    if before is not None and before.subspace.basis.shape == subspace.basis.shape and subspace.basis.size:
        cells |= zip(_ANGLES, np.degrees(subspace.angles(before.subspace))[::-1].tolist(), strict=False)
    return [cells.get(name) for name in COLUMNS]


def loadings(
    release: Release, basis: FloatArray, estimates: Estimates | None, most: int, components: int
) -> dict[str, Any]:
    """Return the ``most`` features with the largest loadings, in their own order, as JSON values.

    ``basis`` is that of the release, perhaps with other signs. ``bars`` are half approximate 95 % intervals.
    """
    basis = basis[:, :components]
    names, chosen = names_of(release), heaviest(basis, most)
    bars = None if estimates is None else np.minimum(1.0, WIDE * estimates.loading_std[:, :components])
    # The variances of all components cost O(d^3), as the estimates do.
    changes, mean = None if estimates is None else release.changes, release.mean if release.is_centered else None
    signs = np.sign((basis * release.subspace.basis[:, : basis.shape[1]]).sum(axis=0))
    rows = [
        {
            "feature": names[i], "values": basis[i].tolist(), "bars": None if bars is None else bars[i].tolist(),
            "changes": None if changes is None else (changes[i, : basis.shape[1]] * signs).tolist(),
            "mean": None if mean is None else float(mean[i]),
        }
        for i in chosen
    ]  # fmt: skip
    return {"t": release.t, "components": basis.shape[1], "rows": rows, "omitted": len(basis) - len(chosen)}


def parameter_text(value: Any) -> str:
    """Write a public parameter as text; bounds (low, high) as ranges."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(side, list) for side in value):
        low, high = value
        if len(set(low)) == len(set(high)) == 1:
            return f"{low[0]:g} to {high[0]:g}"
        ranges = ", ".join(f"{a:g} to {b:g}" for a, b in zip(low[:12], high[:12], strict=True))
        return ranges + (", …" if len(low) > 12 else "")
    return str(value)


def grouped(n: int) -> str:
    """Write a whole number in groups of three digits."""
    return f"{n:,}".replace(",", "\u202f")


# -- figures of a run ---------------------------------------------------------------


class Marks(NamedTuple):
    """Number of leading components that stand out from the noise, and how it was tested."""

    clear: int | None = None  # None if the release cannot tell, or has more than 1000 features
    t: int = 0  # rows up to the release that was tested
    per: Literal["releases", "runs"] = "runs"  # of what the error rate of 5 % is; runs with all of their `LOOKS`

    @classmethod
    def of(cls, release: Release, *, run: bool = False) -> Marks:
        """Test a release: one by itself, or one of a run at one of its `LOOKS`."""
        clear = release.stands_out(IN_RUN if run else ONE) if release.n_features <= LARGE else None
        return cls(clear, release.t, "runs" if run else "releases")

    def text(self, release: Release) -> str:
        """Return a sentence on components that do not stand out, or of which it is unknown; "" without any."""
        k, guarantee = release.subspace.basis.shape[1], release.guarantee
        if self.clear is None and release.packed is None:
            return "This mechanism releases directions only; whether they are more than noise cannot be told from them."
        if self.clear is None:
            return "Whether the directions are more than noise is not tested for this law of the noise, or this size."
        if self.clear:
            return "" if self.clear == k else f"Only {self.clear} of {k} components stand out from the noise."
        spent = f" and ({guarantee.epsilon:g}, {guarantee.delta:g})-DP is spent" if guarantee.is_private else ""
        plan = ""
        if release.terms.calendar is None:  # the plan is for a public number of rows
            plan = f" What to expect: streampca plan -n {release.t} -d {release.n_features} -k {k} --epsilon "
            plan += f"{guarantee.epsilon:g}"
        return (
            "No direction stands out from the noise (were there none, one would be shown in at most 5 % of "
            f"{self.per}). The release is valid{spent}. Next time: more rows, fewer columns, tighter public ranges, or "
            f"a larger \N{GREEK SMALL LETTER EPSILON}.{plan}"
        )


class Looks:
    """Marks over a run, whose error rate is 5 % for all of them together.

    The components of at most `LOOKS` releases are tested at `IN_RUN`: those of number 1, 2, 3, 4, 6, 9, 13, ... (each
    about a half more than the one before) and the last one. The ``marks`` of the latest one hold for those after it.
    """

    def __init__(self) -> None:
        self.marks = Marks()
        self._seen, self._t, self._next, self._left = 0, 0, 1, LOOKS

    def see(self, release: Release) -> None:
        """Count a new release, and test it if it is its turn."""
        if release.t == self._t:
            return
        self._seen, self._t = self._seen + 1, release.t
        if self._seen >= self._next and self._left > 1:  # one look is left for the last release
            self._next = self._seen + max(1, self._seen // 2)
            self.last(release)

    def last(self, release: Release) -> None:
        """Test the last release, unless it was tested or no look is left."""
        if self._left and release.t != self.marks.t:
            self.marks, self._left = Marks.of(release, run=True), self._left - 1


def notes_on(release: Release) -> list[Fact]:
    """Return what a release depends on besides its noise, and its prediction of the captured share."""
    notes = []
    if (radius := release.details.get("clip_radius", 1.0)) != 1.0:
        # About a mean, rows are divided by 1 + |m| before they are clipped.
        norm, about = radius * (1.0 + release.details.get("center_norm", 0.0)), " about the mean" * release.is_centered
        text = f"norm {norm * release.row_norm:.3g}{about}, measured privately"
        notes.append(Fact("Rows clipped to", f"{text}; error bars are of the noise, not of clipping"))
    if (interval := release.details.get("captured_interval")) is not None:
        text = f"{interval[0]:.1%} to {interval[1]:.1%} of what {release.n_components} components can capture"
        notes.append(Fact("Predicted", text))
    if (clip := release.details.get("gradient_clip", 1.0)) != 1.0:
        notes.append(Fact("Gradients clipped to", f"{clip:.3g} row_norm**2, which lowers the noise"))
    if release.own_smoothed is not None:
        notes.append(Fact("Error bars", "of the noise only: the bias of smoothing depends on the drift of the rows"))
    return notes


def regret_facts(record: RegretRecord) -> list[Fact]:
    """Return the regret and the captured share of a record. Curator only."""
    bound = "none proved" if record.average_bound is None else f"{record.average_bound:.4g}"
    label, least, regret = "Captured, exactly", "", f"{record.average:.4g}"
    if record.slack:  # both are intervals
        most = record.per_row(record.regret + record.slack)
        label, least, regret = "Captured", "at least ", f"between {regret} and {most:.4g}"
    captured = "nothing to capture: every usable row is the same"
    if not math.isnan(record.captured):
        captured = f"{least}{percent(record.captured)} of the best subspace"
    figures = ((label, captured), ("Regret per row", regret), ("Bound on the regret", bound))
    return [Fact(name, value, curator=True) for name, value in figures]


def admission_facts(report: AdmissionReport) -> list[Fact]:
    """Return the shares and the warnings of an admission report. Curator only."""
    if math.isnan(report.ball_used):
        found = ", ".join(f"{count} {reason}" for reason, count in report.zero_rows_by_reason.items())
        return [Fact("Usable rows", f"none of {report.rows}" + (f" ({found})" if found else ""), curator=True)]
    # Four names: with a hundred features a list of all would hide the rest.
    clamped = sorted(((share, name) for name, share in report.share_clamped.items() if share > 0.0), reverse=True)
    named = ", ".join(f"{name} {100.0 * share:.3g} %" for share, name in clamped[:4])
    others = f" and {len(clamped) - 4} more" if len(clamped) > 4 else ""
    reasons = report.zero_rows_by_reason
    why = ", ".join(f"{count:,} {reason}" if len(reasons) > 1 else reason for reason, count in reasons.items())
    pairs = [("Unusable", f"{report.bad_rows:,} rows ({why})")] if why else []
    if report.share_clamped:
        pairs.append(("Clipped", f"{named}{others}" or "nothing"))
    else:
        pairs.append(("Shortened", f"{100.0 * report.share_scaled:.3g} % of the rows"))
    pairs.append(("Used", f"{100.0 * report.ball_used:.3g} % of the ball that the noise is calibrated for"))
    return [Fact(label, value, curator=True) for label, value in pairs]


def percent(share: float, digits: int = 3) -> str:
    """Write a share in per cent, rounded down, so that a share below one never reads as one."""
    # 1e-9 repairs products such as 0.29 * 100 = 28.999999999999996.
    scale = 10.0**digits
    return f"{math.floor(100.0 * share * scale + 1e-9) / scale:.{digits}f} %"


# -- the guarantee in words ---------------------------------------------------------

#: By adjacency: the difference of neighboring inputs, the public facts, and the neighbor of a row.
_ADJACENCY = {
    "zero-out": (
        "two inputs are compared that differ in it: one holds its values, the other zeros or nothing in their place",
        "The number of rows and their positions are treated as public.",
        "zeros in their place",
    ),
    "replace": (
        "two inputs are compared that differ in it: one holds its values, the other any others in their place",
        "The number of rows is treated as public.",
        "any other values in their place",
    ),
    "add-remove": (
        "two inputs are compared, one of which lacks it",
        "The number of rows is protected, too.",
        "none",
    ),
}


def summary(guarantee: Guarantee) -> str:
    """Write the guarantee in one line."""
    if not guarantee.is_private:
        return "none"
    return f"{guarantee.brief}, {guarantee.adjacency}" + ", but the noise is seeded" * ("seeded" in guarantee.caveat)


def over_periods(guarantee: Guarantee) -> list[tuple[str, str]]:
    """Return what somebody costs who is present in several periods of a unit, as a list of one; else an empty one."""
    figures = [
        f"{p} × {guarantee.period}: mu {mu:.3g}, rho {rho:.3g}" for p, (mu, rho) in guarantee.over_periods.items()
    ]
    return [("Over several periods", " · ".join(figures))] if figures else []


def in_words(guarantee: Guarantee) -> list[tuple[str, str]]:
    """Return the guarantee as (heading, text). Every figure follows from its epsilon, delta and mu."""
    if not guarantee.is_private:
        return [("What is promised", f"Nothing: {guarantee.theorem}. Treat everything here like the rows themselves.")]
    e, delta, mu, unit = guarantee.epsilon, guarantee.delta, guarantee.mu, guarantee.unit
    odds = math.exp(e) if e < 700.0 else math.inf  # exp overflows beyond 709
    unknown = f"neighbors under {guarantee.adjacency!r} are compared", "", "a neighbor in its place"
    how, public, other = _ADJACENCY.get(guarantee.adjacency, unknown)
    one_in = f" (1 in {1.0 / delta:,.0f})".replace(",", " ") if 0.0 < delta < 1.0 else ""
    twice = ""
    if mu is not None and not guarantee.slack:
        twice = f" (m = 2: epsilon = {replace(guarantee, mu=2.0 * mu).epsilon_at(delta):.3g} at the same delta)"
    gaps = "; ".join(guarantee.unprotected)
    words = [
        ("What is protected", f"The contents of {unit}, whichever it is: {how}. {public}".strip()),
        (
            "What is promised",
            f"For any prior knowledge and any analysis of the releases, any conclusion is at most "
            f"{odds:.3g} times as likely (e to the power epsilon, epsilon = {e:g}) with the real values as "
            f"with {other}, and vice versa, apart from an additional probability of delta = "
            f"{delta:g}{one_in}.",
        ),
        (
            "What that means for an attacker",
            f"{guarantee.sentence} Over all tests, the probability of a hit exceeds that of a false alarm by at most "
            f"{percent_up(guarantee.advantage)}.",
        ),
        *over_periods(guarantee),
        ("What it covers", f"Taken together: {guarantee.scope}."),
        (
            "What it does not cover",
            f"{gaps[0].upper()}{gaps[1:]}{twice}. Facts about the population that do not depend on {unit}. "
            "Readers with the rows, the key of the noise or its seed.",
        ),
        ("Why it holds", f"{guarantee.theorem} [{guarantee.citation}]."),
    ]
    if caveats := guarantee.caveats:
        words.append(("Caveat", f"{caveats[0].upper()}{caveats[1:]}."))
    return words
