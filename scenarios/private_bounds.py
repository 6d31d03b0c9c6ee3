"""Private bounds beside hand-made ones: ``python scenarios/private_bounds.py`` prints the table of docs/utility.

Hand-made bounds are the .5 % and 99.5 % quantiles of the columns, as somebody who knows the data well would state
them. Each run releases one centered covariance at the end. Captured is the share of the best subspace's variance, of
the centered rows as the run's own bounds scale them (those of the warm-up left out). The subspace of private bounds
is also measured as hand-made bounds scale all rows: other scales are another question, so 1 is not to be expected.
Means over seeds.
"""

import itertools
from typing import Any

import numpy as np
from real_tables import fed, markdown, ranged

from streampca.linalg.eigen import top_sum
from streampca.linalg.types import FloatArray
from streampca.processors.private_fpl import PrivateFPL
from streampca.rows.admission import Admission
from streampca.stream.stream import Stream

TABLES = ("flights", "weather", "shuttle", "digits", "segments", "stocks")
DELTA, COMPONENTS, SEEDS = 1e-6, 2, 5


def share(rows: FloatArray, basis: FloatArray) -> float:
    """The share of the best subspace's variance, about the mean, that a basis captures."""
    gram = np.cov(rows.T)
    return float(np.vdot(basis, gram @ basis)) / top_sum(gram, basis.shape[1])


def captured(rows: FloatArray, epsilon: float, seed: int, bounds: Any) -> tuple[float, Stream]:
    """The share that one run captures, and its stream."""
    n, d = rows.shape
    algorithm = PrivateFPL(
        n_components=COMPONENTS, epsilon=epsilon, delta=DELTA, horizon=n, release_every=n, center=True
    )  # fmt: skip
    stream = fed(algorithm, rows, seed, bounds=bounds)
    used = stream.engine.now.admission
    seen = Admission(bounds=used.found or bounds, n_features=d).block(rows[used.warmup :], 1)[0]
    return share(seen, stream.engine.subspace().basis), stream


def line(name: str, epsilon: float) -> list[str]:
    """A line of the table."""
    rows, lower, upper = ranged(name)
    n, d = rows.shape
    hand = [captured(rows, epsilon, seed, (lower, upper))[0] for seed in range(SEEDS)]
    own = [captured(rows, epsilon, seed, "private") for seed in range(SEEDS)]
    plain, other = Admission(bounds=(lower, upper), n_features=d), []
    for _, stream in own:
        ratio = np.asarray(stream.engine.now.admission.factor / plain.factor)[:, None]
        other.append(share(plain.block(rows, 1)[0], np.linalg.qr(ratio * stream.engine.subspace().basis)[0]))
    shares = [f"{np.mean(values):.3f}" for values in (hand, [found for found, _ in own], other)]
    reports = [stream.admission for _, stream in own]
    clamped = np.mean([np.mean(list(report.share_clamped.values())) for report in reports])
    used = np.mean([report.ball_used for report in reports])
    warmup = own[0][1].engine.now.admission.warmup
    return [name, str(n), str(d), f"{epsilon:g}", str(warmup), *shares, f"{clamped:.1%}", f"{used:.0%}"]


if __name__ == "__main__":
    header = "table rows columns epsilon warm-up hand-made private private,_as_hand-made_bounds_scale clamped ball_used"
    lines = [line(name, epsilon) for name, epsilon in itertools.product(TABLES, (0.3, 1.0, 3.0))]
    print(markdown([word.replace("_", " ") for word in header.split()], lines))
