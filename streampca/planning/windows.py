"""Predictions for algorithms that follow the last rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.svec import svec_size
from streampca.planning import costs
from streampca.planning.curve import Curve
from streampca.planning.predictions import Prediction, common, predictor
from streampca.planning.question import Question
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.theorems import gaussian_noise_norm

_NOTES = {
    "histogram": "memory grows with log W; covers some rows before the window",
    "ring": "exactly the window",
    "forgetting": "least noise; old rows fade instead of leaving",
    "once": "one release, of the last rows",
}


@predictor
def windows(question: Question, curve: Curve) -> Iterator[Prediction]:
    """`SlidingWindowPCA` with each of its methods."""
    if question.window is None:
        return
    width, n, d = question.rows, question.n_rows, question.n_features
    every = question.release_every or max(1, width // 100)
    every = min(every, width)
    while width % every:  # some methods take whole groups of rows only
        every -= 1
    for method, note in _NOTES.items():
        settings: dict[str, Any] = {**common(question), "window": width, "method": method}
        settings |= {"horizon": n} if method == "once" else {"release_every": every}
        try:
            algorithm = SlidingWindowPCA(**settings)
        except BadParameter:
            continue  # a window too long for this method
        std = algorithm.noise_std(n if method == "once" or n >= every else every)
        # The histogram's sum reaches back before the window, by half its overhang on average; a fading sum is
        # short of what it has not seen.
        extra = 0.5 * algorithm.overhang * width if method == "histogram" else 0.0
        if method == "forgetting":
            extra = -width * (1.0 - every / width) ** (n // every)
        share = float(curve.captured(std / (width + extra)))
        beyond = np.diag(extra * question.spectrum)
        error = curve.norm_beside(std, beyond) if extra else std * curve.norm
        leaves = width // every
        packed = 8 * svec_size(d)
        bound = gaussian_noise_norm(d, std)
        points = 4 + 1 / algorithm.overhang + 4 / algorithm.eta * np.log1p(width * question.spectrum / bound).sum()
        held = {
            "histogram": int(points) * 2 * packed,
            "ring": min(4 * width * d, leaves * 2 * packed),
            "forgetting": packed,
            "once": 2 * packed,
        }[method]
        releases = 1 if method == "once" else n // every
        yield Prediction(
            "SlidingWindowPCA", settings, "once" if method == "once" else "window", share,
            std * question.row_norm**2, error * question.row_norm**2, None, releases,
            costs.gram_bytes(d, "window") + held,
            costs.gram_seconds(n, d) + costs.release_seconds(releases, d, "window"), note,
            algorithm,
        )  # fmt: skip
