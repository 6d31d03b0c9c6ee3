"""Facts about releases, as terminals, notebooks, pages, reports and pictures show them.

Post-processing of releases, but for facts marked ``curator``, which are exact functions of raw rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.regret.regret import RegretRecord
from streampca.release.estimates import WIDE, Estimates
from streampca.release.release import Release, rows_summed
from streampca.rows.report import AdmissionReport
from streampca.views.plots import has_drawable_gram, heaviest

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
_ANGLES = tuple(f"angle_{i}" for i in range(1, COMPONENTS + 1))
#: The columns of `release_row`.
COLUMNS = ("t", *_EIGENVALUES, "noise", "share", *_ANGLES)


# -- one release in figures ---------------------------------------------------------


def release_row(release: Release, before: Release | None) -> list[Cell]:
    """Return the figures of a release that are drawn over time, by `COLUMNS`: per row, None if absent.

    Angles are in degrees, to the release ``before``.
    """
    subspace, rows = release.subspace, rows_summed(release)
    cells: dict[str, Cell] = {"t": release.t, "share": captured_share(release)}
    if release.eigenvalues is not None:
        cells |= zip(_EIGENVALUES, (release.eigenvalues / rows).tolist(), strict=False)
    if release.noise_std is not None and release.packed is not None:
        # The largest eigenvalue of the noise is near noise_std * sqrt(2 d).
        cells["noise"] = release.noise_std * math.sqrt(2.0 * release.n_features) / rows
    # The largest angle comes first, although principal angles are ascending.
    if before is not None and before.subspace.basis.shape == subspace.basis.shape and subspace.basis.size:
        cells |= zip(_ANGLES, np.degrees(subspace.angles(before.subspace))[::-1].tolist(), strict=False)
    return [cells.get(name) for name in COLUMNS]


def captured_share(release: Release) -> float | None:
    """Return the share of the trace of the released matrix in its subspace; None while noise hides it."""
    if not has_drawable_gram(release):
        return None
    # The trace of the noise has sd noise_std sqrt(d). Below two of them the trace itself may be noise.
    trace = float(np.trace(release.gram))
    noise = 0.0 if release.noise_std is None else release.noise_std * math.sqrt(release.n_features)
    share = release.subspace.captured(release.gram) / trace if trace > 2.0 * noise else math.inf
    return share if share <= 1.0 else None  # negative eigenvalues of the noise raise it above one


def estimates_of(release: Release, most: int = ESTIMATED) -> Estimates | None:
    """Return estimates for the components of a release; None if it does not state the law of the noise.

    None, too, if there are more than ``most`` features: estimates require O(d^3) time.
    """
    # A smoothed release has another law of its noise, which it states apart.
    std = release.noise_std if release.own_smoothed is None else release.details.get("smoothed_noise_std")
    has_law = release.packed is not None and std is not None
    return release.component_estimates if has_law and release.n_features <= most and release.n_components else None


def loadings(
    release: Release, basis: FloatArray, estimates: Estimates | None, most: int, components: int
) -> dict[str, Any]:
    """Return the ``most`` features with the largest loadings, in their own order, as JSON values.

    ``basis`` is that of the release, (d, k), perhaps with other signs. ``bars`` are half the widths of approximate 95 %
    intervals; None without ``estimates``.
    """
    basis = basis[:, :components]
    names, chosen = release.features or [f"feature {i + 1}" for i in range(len(basis))], heaviest(basis, most)
    bars = None if estimates is None else np.minimum(1.0, WIDE * estimates.loading_std[:, :components])
    rows = [
        {"feature": names[i], "values": basis[i].tolist(), "bars": None if bars is None else bars[i].tolist()}
        for i in chosen
    ]
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


def clear_components(estimates: Estimates) -> list[bool]:
    """Return for each component whether it exceeds the noise.

    It does if its eigenvalue is positive with joint 95 % confidence, and its direction has more signal than noise
    (estimated cos**2 over 1/2).
    """
    # One condition is not enough: noise has gaps, too, and turns the direction of a positive eigenvalue.
    clear: list[bool] = ((estimates.direction_quality > 0.5) & (estimates.interval()[0] > 0.0)).tolist()
    return clear


def released_facts(release: Release, releases: int | None, estimates: Estimates | None) -> list[Fact]:
    """Return the figures of a run that follow from its releases; ``releases`` is their number, if known."""
    shown = [
        Fact("Rows at the latest release", grouped(release.t)),
        *([] if releases is None else [Fact("Releases", grouped(releases))]),
        Fact("Privacy spent by all releases", summary(release.guarantee)),
    ]
    # Error bars omit two sources of bias: clipping to a norm that the algorithm estimated, and smoothing.
    radius = release.details.get("clip_radius", 1.0)
    if radius != 1.0:
        text = f"norm {radius * release.row_norm:.3g}, measured privately; error bars are of the noise, not of clipping"
        shown.append(Fact("Rows clipped to", text))
    if release.own_smoothed is not None:
        shown.append(Fact("Error bars", "of the noise only: the bias of smoothing depends on the drift of the rows"))
    if estimates is not None:
        clear, explained = sum(clear_components(estimates)), float(estimates.explained_variance_ratio.sum())
        captured = f"{percent(estimates.predicted_captured, 1)} of the best subspace"
        shown.append(Fact("Components above the noise", f"{clear} of {estimates.n_components}"))
        shown.append(Fact("Explained share of the variance", percent(explained, 1)))
        shown.append(Fact("Captured, as the release predicts", captured))
    return shown


def regret_facts(record: RegretRecord) -> list[Fact]:
    """Return the regret and the captured share of a record. Curator only."""
    bound = "none proved" if record.average_bound is None else f"{record.average_bound:.4g}"
    label, least, regret = "Captured, exactly", "", f"{record.average:.4g}"
    if record.slack:  # both are intervals
        most = record.per_row(record.regret + record.slack)
        label, least, regret = "Captured", "at least ", f"between {regret} and {most:.4g}"
    return [
        Fact(label, f"{least}{percent(record.captured)} of the best subspace", curator=True),
        Fact("Regret per row", regret, curator=True),
        Fact("Bound on the regret", bound, curator=True),
    ]


def admission_facts(report: AdmissionReport) -> list[Fact]:
    """Return the shares and the warnings of an admission report. Curator only."""
    # Four names: with a hundred features a list of all would hide the rest.
    clamped = sorted(((share, name) for name, share in report.share_clamped.items() if share > 0.0), reverse=True)
    named = ", ".join(f"{name} {100.0 * share:.3g} %" for share, name in clamped[:4])
    others = f" and {len(clamped) - 4} more" if len(clamped) > 4 else ""
    pairs = [("Values clamped to their bounds", f"{named}{others}" or "none")] if report.share_clamped else []
    pairs += [
        ("Rows scaled onto the ball", f"{100.0 * report.share_scaled:.3g} %"),
        ("Mean squared norm, as a share of the ball's", f"{100.0 * report.ball_used:.3g} %"),
        *(("Warning", text) for text in report.warnings()),
    ]
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
        "two inputs are compared that differ in one row: it holds its values in one, and zeros or nothing in the other",
        "The number of rows and their positions are treated as public.",
        "zeros in its place",
    ),
    "replace": (
        "two inputs are compared that differ in one row: it holds one set of values in one and any other in the other",
        "The number of rows is treated as public.",
        "any other values in its place",
    ),
}


def summary(guarantee: Guarantee) -> str:
    """Write the guarantee in one line."""
    if not guarantee.is_private:
        return "none"
    seeded = ", but the noise is seeded" if "seeded" in guarantee.caveat else ""
    return f"({guarantee.epsilon:g}, {guarantee.delta:g})-DP for {guarantee.unit}, {guarantee.adjacency}{seeded}"


def promise(guarantee: Guarantee) -> str:
    """Write the guarantee in one sentence."""
    if not guarantee.is_private:
        return f"nothing: {guarantee.theorem}. Treat it like the rows themselves."
    other = _ADJACENCY.get(guarantee.adjacency, ("", "", "a neighbor in its place"))[2]
    caveat = f" Caveat: {guarantee.caveats}." if guarantee.caveats else ""
    return (
        f"any conclusion from all releases together is at most {_odds(guarantee):.3g} times as likely with the values "
        f"of {guarantee.unit} as with {other}, but for a probability of {guarantee.delta:g}.{caveat}"
    )


def in_words(guarantee: Guarantee) -> list[tuple[str, str]]:
    """Return the guarantee as (heading, text). Every figure follows from its epsilon, delta and mu."""
    if not guarantee.is_private:
        return [("What is promised", f"Nothing: {guarantee.theorem}. Treat everything here like the rows themselves.")]
    e, delta, mu = guarantee.epsilon, guarantee.delta, guarantee.mu
    unknown = f"neighbors under {guarantee.adjacency!r} are compared", "", "a neighbor in its place"
    how, public, other = _ADJACENCY.get(guarantee.adjacency, unknown)
    one_in = f" (1 in {1.0 / delta:,.0f})".replace(",", " ") if 0.0 < delta < 1.0 else ""
    # Rounded up, as it is a bound.
    found = math.ceil(1000.0 * most_found(guarantee, 0.05)) / 10.0
    # Group privacy: m-fold mu for mu-GDP (Dong, Roth, Su 2022), but a slack in delta does not scale so.
    several = "the same person in m rows is protected with m times epsilon, and a larger delta"
    if mu is not None:
        several = f"the same person in m rows is protected with m times mu = {mu:.4g}"
        if not guarantee.slack:
            twice = replace(guarantee, mu=2.0 * mu).epsilon_at(delta)
            several += f" (in two rows: epsilon = {twice:.3g} at the same delta)"
    words = [
        ("What is protected", f"The contents of {guarantee.unit}, whichever it is: {how}. {public}".strip()),
        (
            "What is promised",
            f"For any prior knowledge and any analysis of the releases, any conclusion is at most "
            f"{_odds(guarantee):.3g} times as likely (e to the power epsilon, epsilon = {e:g}) with the real values as "
            f"with {other}, and vice versa, apart from an additional probability of delta = "
            f"{delta:g}{one_in}.",
        ),
        (
            "What that means for an attacker",
            "Somebody who knows all other rows, tests whether a given row was used, and accepts 5 % false alarms, "
            f"detects it in at most {found:g} % of the cases where it was; guessing gives 5 %.",
        ),
        ("What it covers", f"Taken together: {guarantee.scope}."),
        (
            "What it does not cover",
            f"Several rows of one person: {several}. Another run on the same rows, which adds to the total. Facts "
            "about the population that do not depend on one row. Readers with the rows, the key of the noise or its "
            "seed.",
        ),
        ("Why it holds", f"{guarantee.theorem} [{guarantee.citation}]."),
    ]
    if caveats := guarantee.caveats:
        words.append(("Caveat", f"{caveats[0].upper()}{caveats[1:]}."))
    return words


def most_found(guarantee: Guarantee, false_alarms: float) -> float:
    """Return the largest share of true cases that any test finds at a rate of false alarms.

    For mu-GDP it is the trade-off function of Dong, Roth, Su 2022, plus slack; otherwise the trade-off bound of
    (epsilon, delta)-DP of Wasserman and Zhou 2010.
    """
    if not guarantee.is_private:
        return 1.0
    e, delta = guarantee.epsilon, guarantee.delta
    # Two-sided, for both directions of (epsilon, delta)-indistinguishability.
    found = min(math.exp(e) * false_alarms + delta, 1.0 - math.exp(-e) * (1.0 - delta - false_alarms))
    if guarantee.mu is not None:
        found = min(found, float(ndtr(ndtri(false_alarms) + guarantee.mu)) + guarantee.slack)
    return min(1.0, max(false_alarms, found))


def _odds(guarantee: Guarantee) -> float:
    # exp overflows beyond 709.
    return math.exp(guarantee.epsilon) if guarantee.epsilon < 700.0 else math.inf
