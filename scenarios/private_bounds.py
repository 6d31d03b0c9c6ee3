"""Private bounds beside hand-made ones: ``python scenarios/private_bounds.py`` prints the table of docs/utility.md.

Hand-made bounds are the .5 % and 99.5 % quantiles of the columns, as somebody who knows the data well would state
them. Each run releases one centered covariance at the end. Captured is the share of the best subspace's variance, of
the centered rows as the run's own bounds scale them (those of the warm-up left out). The subspace of private bounds
is also measured as hand-made bounds scale all rows: other scales are another question, so 1 is not to be expected.
Means over seeds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from streampca.linalg.types import FloatArray
from streampca.processors.private_fpl import PrivateFPL
from streampca.rows.admission import Admission
from streampca.stream.stream import Stream

sys.path.insert(0, str(Path(__file__).parent))
from real_tables import ranged

TABLES = ("flights", "weather", "shuttle", "digits", "segments", "stocks")
DELTA, COMPONENTS, SEEDS = 1e-6, 2, 5


def share(gram: FloatArray, basis: FloatArray) -> float:
    """The share of the best subspace's variance that a basis captures."""
    return float(np.trace(basis.T @ gram @ basis) / np.linalg.eigvalsh(gram)[-basis.shape[1] :].sum())


def captured(rows: FloatArray, epsilon: float, seed: int, **bounds: object) -> tuple[float, Stream]:
    """The share that one run captures, and its stream."""
    n = len(rows)
    algorithm = PrivateFPL(n_components=COMPONENTS, epsilon=epsilon, delta=DELTA, horizon=n, release_every=n)
    stream = Stream(algorithm, center=True, regret=None, seed=seed, **bounds)  # type: ignore[arg-type]
    stream.push_many(rows)
    used = stream.engine.now.admission
    plain = Admission(bounds=used.found or bounds["bounds"], n_features=rows.shape[1])  # type: ignore[arg-type]
    seen = plain.block(rows[used.warmup :], 1)[0]
    return share(np.cov(seen.T), stream.engine.subspace.basis), stream


def main() -> None:
    """Print the table."""
    print(
        "| table | rows | columns | epsilon | warm-up | hand-made | private | private, as hand-made bounds scale "
        "| clamped | ball used |"
    )
    print("| --- " * 10 + "|")
    for name in TABLES:
        values, lower, upper = ranged(name)
        rows = values[np.random.default_rng(len(values)).permutation(len(values))[:20_000]]
        for epsilon in (0.3, 1.0, 3.0):
            hand = [captured(rows, epsilon, seed, bounds=(lower, upper))[0] for seed in range(SEEDS)]
            own = [captured(rows, epsilon, seed, bounds="private") for seed in range(SEEDS)]
            plain, other = Admission(bounds=(lower, upper), n_features=rows.shape[1]), []
            for _, stream in own:
                ratio = np.asarray(stream.engine.now.admission.factor / plain.factor)[:, None]
                other.append(
                    share(np.cov(plain.block(rows, 1)[0].T), np.linalg.qr(ratio * stream.engine.subspace.basis)[0])
                )
            reports = [stream.admission for _, stream in own]
            clamped = np.mean([np.mean(list(report.share_clamped.values())) for report in reports])
            print(
                f"| {name} | {len(rows)} | {rows.shape[1]} | {epsilon:g} | {own[0][1].engine.now.admission.warmup} "
                f"| {np.mean(hand):.3f} | {np.mean([found for found, _ in own]):.3f} | {np.mean(other):.3f} "
                f"| {clamped:.1%} | {np.mean([report.ball_used for report in reports]):.0%} |"
            )


if __name__ == "__main__":
    main()
