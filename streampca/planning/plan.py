"""The planner: predict all that applies, recommend one, warn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.types import FloatArray
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.planning.curve import Curve
from streampca.planning.predictions import PREDICTORS, Prediction
from streampca.planning.question import Question
from streampca.privacy.budget import Adjacency
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.tables import html_table

if TYPE_CHECKING:
    import pandas as pd

#: Candidates closer than this in captured variance or in regret count as equal.
_EQUAL = 0.003
#: Bytes of a window beyond which a histogram of it is preferred.
_HELD = 2**28
#: A subspace that captures less than this share of the best one's reward is mostly noise.
DROWNED = 0.5
#: Share that a good subspace captures.
GOOD = 0.99


@dataclass(frozen=True)
class Plan:
    """Predictions and a recommendation.

    Attributes
    ----------
    question : Question
    predictions : tuple of Prediction
        All candidates; those that serve the purpose come first, the best one first.
    recommended : Prediction
    reason : str
        Reason for the recommendation.
    warnings : tuple of str
        Expected failures, with the number of rows that would suffice.
    advice : tuple of str
        Advice on choices that the planner cannot make.
    """

    question: Question
    predictions: tuple[Prediction, ...]
    recommended: Prediction
    reason: str
    warnings: tuple[str, ...]
    advice: tuple[str, ...]

    @property
    def algorithm(self) -> Any:
        """The recommended algorithm or mechanism."""
        return self.recommended.algorithm

    def table(self) -> list[dict[str, str]]:
        """Return one row of text for each candidate."""
        return [
            {
                "candidate": p.label,
                "captured": f"{p.captured:.4f}" if p.is_certain else "cannot tell",
                "regret": "-" if p.regret_per_row is None else f"{p.regret_per_row:.3g}",
                "noise": "-" if p.noise_std is None else f"{p.noise_std:.4g}",
                "error": "-" if p.spectral_error is None else f"{p.spectral_error:.4g}",
                "releases": str(p.releases),
                "memory": _bytes(p.memory),
            }
            for p in self.predictions
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return `table` as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(self.table())

    def _repr_html_(self) -> str:
        rows = self.table()
        note = [f"Why: {self.reason}", f"Assumed: {self.question.assumed}"]
        note += [f"Warning: {text}" for text in self.warnings] + [f"Advice: {text}" for text in self.advice]
        cells, use = (tuple(row.values()) for row in rows), f"Use {self.recommended.code}"
        return html_table(tuple(rows[0]), cells, warning=use, note=". ".join(note))

    def __str__(self) -> str:
        rows = [{name: name for name in self.table()[0]}, *self.table()]
        widths = {name: max(len(row[name]) for row in rows) for name in rows[0]}
        lines = ["  ".join(row[name].ljust(width) for name, width in widths.items()).rstrip() for row in rows]
        lines += [f"{p.label}: {p.note}" for p in self.predictions if p.note]
        lines += ["", f"assumed: {self.question.assumed}", f"use: {self.recommended.code}", f"why: {self.reason}"]
        lines += [f"warning: {text}" for text in self.warnings] + [f"advice: {text}" for text in self.advice]
        return "\n".join(lines)


def plan(
    *,
    n_rows: int,
    n_features: int,
    n_components: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "zero-out",
    window: int | None = None,
    release_every: int | None = None,
    center: bool = True,
    spectrum: str | Sequence[float] | FloatArray = "decaying",
    row_norm: float = 1.0,
    typical_norm: float | None = None,
) -> Plan:
    """Predict noise, error, captured variance, regret and memory of every algorithm that applies.

    No row is read, and no budget is spent: predictions follow from the parameters and from a guess of the spectrum.

    Parameters
    ----------
    spectrum : str or sequence of float, default="decaying"
        The `guess` of `Question`. All other parameters have the names and defaults of `Question`.
    """
    question = Question(
        n_rows=n_rows, n_features=n_features, n_components=n_components, epsilon=epsilon, delta=delta,
        adjacency=adjacency, window=window, release_every=release_every, center=center, guess=spectrum,
        row_norm=row_norm, typical_norm=typical_norm,
    )  # fmt: skip
    curve = Curve(question.spectrum, question.n_components)
    found = [p.scaled(question.row_norm**2) for predict in PREDICTORS for p in predict(question, curve)]
    order = sorted(found, key=lambda p: (p.serves != question.purpose, not p.is_certain, -p.captured))
    recommended, reason = _recommend([p for p in order if p.serves == question.purpose], question)
    warnings, advice = _warnings(question, recommended, curve), _advice(question, recommended, found)
    return Plan(question, tuple(order), recommended, reason, tuple(warnings), tuple(advice))


def _recommend(candidates: list[Prediction], question: Question) -> tuple[Prediction, str]:
    """Return the candidate of least regret for a stream, else of the largest captured share, and the reason."""
    if question.purpose == "stream":
        # Regret counts waiting for the first release as well as noise, so it is compared and not the last release.
        scored = {p: p.regret_per_row for p in candidates if p.regret_per_row is not None and p.is_certain}
        unit = question.best * question.row_norm**2
        good = [p for p, regret in scored.items() if regret <= min(scored.values()) + _EQUAL * unit]
        chosen = min(good, key=lambda p: (-p.releases, math.inf if p.noise_std is None else p.noise_std))
        every = chosen.settings.get("release_every")
        return chosen, (
            f"least expected regret, {chosen.regret_per_row:.3g} a row of {unit:.3g} that can be earned, with a "
            f"release {f'every {every} rows' if every else f'{chosen.releases} times'}; the last one captures "
            f"{chosen.captured:.1%}"
        )
    most = max(p.captured for p in candidates)
    good = [p for p in candidates if p.captured >= most - _EQUAL]
    if question.purpose == "window":
        # The window itself, if its rows fit into memory; then a sum of bounded memory; then fading sums.
        order = ["ring", "histogram", "smoothed", "forgetting"]
        chosen = min(good, key=lambda p: (p.memory > _HELD, order.index(p.settings["method"])))
        return chosen, (
            f"captures {chosen.captured:.1%} of the best subspace of the window (the most is {most:.1%}), with "
            f"{chosen.releases} releases in {_bytes(chosen.memory)}; {chosen.note}"
        )
    # Certain ones first, then those that spend no delta, then those with a Gram matrix, then by error.
    chosen = min(
        good, key=lambda p: (not p.is_certain, "delta" in p.settings, p.spectral_error is None, p.spectral_error or 0.0)
    )
    if not chosen.is_certain:
        known = max((p for p in candidates if p.is_certain), key=lambda p: p.captured)
        return chosen, (
            f"captures {chosen.captured:.1%} of the best subspace on Gaussian rows of this spectrum ({known.name}: "
            f"{known.captured:.1%}); how much on yours the planner cannot tell"
        )
    pure = "" if "delta" in chosen.settings else ", and spends no delta"
    return chosen, f"captures {chosen.captured:.1%} of the best subspace (the most is {most:.1%}){pure}"


def _bytes(n: float) -> str:
    """Three digits of a number of bytes, with a unit."""
    power = max(0, min(3, int(math.log10(max(n, 1.0)) // 3)))
    return f"{n / 1000.0**power:.3g} {('B', 'KB', 'MB', 'GB')[power]}"


def _warnings(q: Question, best: Prediction, curve: Curve) -> list[str]:
    """Return expected failures, with the number of rows that would suffice."""
    texts, k = [], q.n_components
    chance = float(q.spectrum.sum()) * k / q.n_features / q.best
    if best.captured < min(GOOD, max(DROWNED, 0.5 * (1.0 + chance))):
        texts.append(
            f"the noise drowns the signal: {best.name} is expected to capture {best.captured:.1%} of what {k} "
            f"components can, and a random subspace captures {chance:.1%}"
        )
    if best.captured < GOOD and (needed := _rows_needed(q, curve, best)) is not None:
        whole = "rows" if q.window is None else "rows in the window"
        by = "" if best.is_certain else " by GaussianCovariance"
        step = 10 ** max(0, len(str(needed)) - 2)  # two digits, rounded up
        needed = -(-needed // step) * step
        texts.append(f"for {GOOD:.0%} captured variance{by} about {needed} {whole} are needed; there are {q.rows}")
    if best.spectral_error is not None:
        noise = (best.spectral_error if best.noise_std is None else best.noise_std * curve.norm) / q.row_norm**2
        signal = q.rows * q.spectrum[:k]
        if (signal < noise).any():
            first = int(np.argmax(signal < noise))
            texts.append(
                f"components from number {first + 1} on lie below the noise ({signal[first]:.3g} against {noise:.3g} "
                "row_norm**2): ask for fewer, or bring more rows"
            )
    # A mechanism that publishes each row with probability delta is (0, delta)-private.
    if q.delta > 0.1 / q.n_rows:
        texts.append(
            f"delta={q.delta:g} is not well below 1 / n_rows = {1 / q.n_rows:.2g}: a mechanism may expose "
            "whole rows within it"
        )
    if q.epsilon > 10.0:
        factor = math.exp(min(q.epsilon, 700.0))
        texts.append(f"epsilon={q.epsilon:g} promises little: an attacker's odds may change by a factor {factor:.2g}")
    return texts


def _rows_needed(question: Question, curve: Curve, best: Prediction) -> int | None:
    """Return the rows (in a window, if there is one) for which the recommended kind of algorithm captures a good share.

    A mechanism counts as `GaussianCovariance`. None for `PrivateOja`, which releases no Gram matrix.
    """
    settings, every = question.centered_settings, question.release_every
    if best.noise_std is None and best.serves != "once":
        return None

    def std(rows: int) -> float:
        if best.serves == "once":
            return GaussianCovariance(**settings).noise_std(question.n_features)
        if best.serves == "stream":
            # The number of releases is a power of two, so that few horizons have to be fitted.
            step = max(every or 1, -(-rows // 1024))
            horizon = step * 2 ** max(0, math.ceil(math.log2(rows / step)))
            return PrivateFPL(**settings, horizon=horizon, release_every=step).noise_std(rows)
        step = min(every or max(1, rows // 100), rows)
        width = rows // step * step
        return SlidingWindowPCA(**settings, window=width, method="histogram", release_every=step).noise_std(4 * width)

    try:
        return curve.rows_for(GOOD, std)
    except BadParameterError:
        return None


def _advice(q: Question, best: Prediction, found: Sequence[Prediction]) -> list[str]:
    """Return advice on choices that the planner cannot make."""
    texts, typical, square = [], q.typical_norm, float(q.spectrum.sum())
    if typical is not None and typical < 0.7 * q.row_norm:
        texts.append(
            f"row_norm={q.row_norm:g} is far above the typical norm {typical:g}: noise scales with row_norm**2, so "
            f"row_norm={typical:g} would have {(q.row_norm / typical) ** 2:.3g} times less of it; longer rows are "
            "scaled down"
        )
    elif typical is not None and typical > 2.0 * q.row_norm:
        texts.append(
            f"row_norm={q.row_norm:g} scales almost every row down (typical norm {typical:g}): directions stay, "
            "lengths are lost; raise it towards the typical norm if long rows should count for more"
        )
    elif square < 0.2:
        texts.append(
            f"rows use {square:.1%} of row_norm**2: a smaller row_norm, or tighter public bounds, would lower the "
            "noise beside the signal in that proportion"
        )
    texts.append(
        "choose row_norm near the length of a typical row, and bounds as the ranges you would state without looking "
        "at the data: neither may be computed from the rows; a feature that uses a tenth of its range has a hundredth "
        "of its signal"
    )
    if q.window is not None:
        tumbling = max((p for p in found if p.name.startswith("Tumbling")), key=lambda p: p.captured)
        texts.append(
            f"for rows that keep to one distribution, {tumbling.name} with release_every={q.rows} has less noise: it "
            f"captures {tumbling.captured:.1%} of the last full window, with a release a window"
        )
    if q.release_every is None and "release_every" in best.settings:
        texts.append(
            f"release_every={best.settings['release_every']}: fewer releases carry less noise (e times as many cost "
            f"{1.0 / (math.pi * q.budget.mu):.2g} row_norm**2 more sd), but rows wait longer for theirs"
        )
    return texts
