"""Warnings and advice: what will not work, how many rows would do, what to choose."""

from __future__ import annotations

import math
from collections.abc import Callable

from streampca.errors import BadParameter
from streampca.planning.curve import Curve
from streampca.planning.predictions import Prediction
from streampca.planning.question import Question
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.sliding_window import SlidingWindowPCA

#: A subspace that captures less than this share of the best one's reward is mostly noise.
DROWNED = 0.5
#: What a good subspace captures.
GOOD = 0.99


def warnings_for(question: Question, best: Prediction, curve: Curve) -> list[str]:
    """What will not work, with the number of rows that would do."""
    said = []
    q, k = question, question.n_components
    chance = float(q.spectrum.sum()) * k / q.n_features / q.best
    if best.captured < DROWNED or best.captured < 0.5 * (1.0 + chance):
        said.append(
            f"the noise drowns the signal: {best.name} is expected to capture {best.captured:.1%} of what {k} "
            f"components can, and a random subspace captures {chance:.1%}"
        )
    if best.captured < GOOD:
        needed = rows_needed(q, curve, GOOD)
        whole = "rows" if q.window is None else "rows in the window"
        if needed is None:
            said.append(f"no number of rows reaches {GOOD:.0%} captured variance: the spectrum has no gap to find")
        else:
            said.append(
                f"for {GOOD:.0%} captured variance some {_round(needed)} {whole} are needed; there are {q.rows}"
            )
    if best.spectral_error is not None:
        noise = (best.spectral_error if best.noise_std is None else best.noise_std * curve.norm) / q.row_norm**2
        lost = [j for j in range(k) if q.rows * float(q.spectrum[j]) < noise]
        if lost:
            below = q.rows * float(q.spectrum[lost[0]])
            said.append(
                f"components from number {lost[0] + 1} on lie below the noise ({below:.3g} against {noise:.3g} "
                "row_norm**2): ask for fewer, or bring more rows"
            )
    if q.delta > 0.1 / q.n_rows:
        said.append(
            f"delta={q.delta:g} is not well below 1 / n_rows = {1 / q.n_rows:.2g}: a mechanism may expose "
            "whole rows within it"
        )
    if q.epsilon > 10.0:
        factor = math.exp(min(q.epsilon, 700.0))
        said.append(f"epsilon={q.epsilon:g} promises little: an attacker's odds may change by a factor {factor:.2g}")
    return said


def rows_needed(question: Question, curve: Curve, share: float) -> int | None:
    """Rows (in the window, if there is one) after which the default algorithm captures that share."""
    common = {
        "n_components": question.n_components, "epsilon": question.epsilon, "delta": question.delta,
        "adjacency": question.adjacency,
    }  # fmt: skip
    every = question.release_every

    def stream(rows: int) -> float:
        # A power of two of releases, so that few horizons have to be fitted.
        step = every or -(-rows // 1024)
        horizon = step * 2 ** max(0, math.ceil(math.log2(rows / step)))
        return PrivateFPL(**common, horizon=horizon, release_every=step).noise_std(rows)  # type: ignore[arg-type]

    def window(rows: int) -> float:
        step = min(every or max(1, rows // 100), rows)
        width = rows // step * step
        return SlidingWindowPCA(**common, window=width, method="histogram", release_every=step).noise_std(4 * width)  # type: ignore[arg-type]

    std: Callable[[int], float] = stream if question.window is None else window
    try:
        return curve.rows_for(share, std)
    except BadParameter:
        return None


def advice_for(question: Question, best: Prediction, typical_norm: float | None) -> list[str]:
    """How to choose what the user must choose."""
    q = question
    said = []
    square = float(q.spectrum.sum())
    if typical_norm is not None and typical_norm < 0.7 * q.row_norm:
        factor = (q.row_norm / typical_norm) ** 2
        said.append(
            f"row_norm={q.row_norm:g} is far above the typical norm {typical_norm:g}: noise scales with row_norm**2, "
            f"so row_norm={typical_norm:g} would have {factor:.3g} times less of it; longer rows are scaled down"
        )
    elif typical_norm is not None and typical_norm > 2.0 * q.row_norm:
        said.append(
            f"row_norm={q.row_norm:g} scales almost every row down (typical norm {typical_norm:g}): directions stay, "
            "lengths are lost; raise it towards the typical norm if long rows should count for more"
        )
    elif square < 0.2:
        said.append(
            f"rows use {square:.1%} of row_norm**2: a smaller row_norm, or tighter public bounds, would lower the "
            "noise beside the signal in that proportion"
        )
    said.append(
        "choose row_norm near the length of a typical row, and bounds as the ranges you would state without looking "
        "at the data: neither may be read off the rows; a feature that uses a tenth of its range has a hundredth of "
        "its signal"
    )
    if q.release_every is None and "release_every" in best.settings:
        said.append(
            f"release_every={best.settings['release_every']}: fewer releases carry less noise (e times as many cost "
            f"{1.0 / (math.pi * q.budget.mu):.2g} row_norm**2 more sd), but rows wait longer for theirs"
        )
    return said


def _round(n: int) -> str:
    """Two digits, rounded up."""
    step = 10 ** max(0, len(str(n)) - 2)
    return str(-(-n // step) * step)
