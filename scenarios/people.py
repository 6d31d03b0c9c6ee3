"""People with several rows: ``python scenarios/people.py``.

Four worlds of people with few, many, very many and short rows. In each, `PrivateFPL(unit=Person())` protects all rows
of a person with the noise for one row, and the share of the best subspace's energy that the last release captures is
compared with a bar. With ``one``, also of one release with a common weight (`GaussianCovariance`).
"""

import logging
import sys

import numpy as np

import streampca as sp
from streampca.linalg.types import FloatArray

N_ROWS, N_FEATURES, N_COMPONENTS, EVERY, DELTA = 2**14, 20, 3, 64, 1e-6
#: Bars of the worlds, in their order, by epsilon; below, those of one release.
BARS = {1.0: (0.995, 0.975, 0.960, 0.985), 0.3: (0.970, 0.840, 0.790, 0.900)}
ONE_EPSILON, ONE_BARS = 0.1, (0.95, 0.83, 0.76, 0.80)
WORLDS = {
    "4000 people, median 3 rows, at most 128": (4000, 0.79, 128, 1.0),
    "1000 people, median 13 rows, at most 250": (1000, 0.68, 250, 1.0),
    "1000 people, Zipf, median 5, at most 2200 rows": (1000, None, 2200, 1.0),
    "1000 people, median 13 rows, norms .6": (1000, 0.68, 250, 0.6),
}
#: Eigenvalues of the rows, up to a factor.
SPECTRUM = np.array([1.0, 0.7, 0.5] + [0.08] * (N_FEATURES - 3))
#: Part of the variance of a row that all rows of its person share.
SHARED = 0.3


def world(number: int) -> tuple[FloatArray, list[int]]:
    """Return the rows of a world and their people, in random order. A person has a direction of her own."""
    people, spread, most, norm = list(WORLDS.values())[number]
    rng = np.random.default_rng(2026 + number)
    # Numbers of rows are log-normal or follow the law of Zipf; one person has the most.
    sizes = (
        np.arange(1, people + 1) ** -0.99 if spread is None else np.sort(rng.lognormal(sigma=spread, size=people))[::-1]
    )
    counts = np.maximum(1, np.round(sizes * (N_ROWS - most) / sizes[1:].sum()).astype(int))
    counts[0] = most
    names = rng.permutation(np.resize(np.repeat(np.arange(people), counts), N_ROWS))
    own, fresh = (rng.normal(size=(n, N_FEATURES)) * np.sqrt(SPECTRUM) for n in (people, N_ROWS))
    rows = np.sqrt(SHARED) * own[names] + np.sqrt(1.0 - SHARED) * fresh
    norms = norm * rng.uniform(0.5, 1.0, (N_ROWS, 1))
    return norms * rows / np.linalg.norm(rows, axis=1, keepdims=True), names.tolist()


def captured(rows: FloatArray, basis: FloatArray) -> float:
    """Return the energy of the rows in a subspace, as a share of that in the best one."""
    gram = rows.T @ rows
    return float(np.trace(basis.T @ gram @ basis) / np.linalg.eigvalsh(gram)[-N_COMPONENTS:].sum())


def streamed(number: int, epsilon: float, runs: int) -> float:
    """Return the mean share that the last release of a stream captures, over draws of noise."""
    rows, names = world(number)
    algorithm = sp.PrivateFPL(
        n_components=N_COMPONENTS, epsilon=epsilon, delta=DELTA, horizon=N_ROWS, release_every=EVERY, center=False,
        unit=sp.Person(),
    )  # fmt: skip
    shares = []
    for seed in range(runs):
        stream = sp.Stream(algorithm, row_norm=1.0, regret=None, seed=seed)
        stream.push_many(rows, names)
        assert stream.release is not None
        shares.append(captured(rows, stream.release.subspace.basis))
    return float(np.mean(shares))


def released(number: int, runs: int) -> float:
    """Return the mean share that one release of all rows captures."""
    rows, names = world(number)
    mechanism = sp.GaussianCovariance(
        n_components=N_COMPONENTS, epsilon=ONE_EPSILON, delta=DELTA, center=False, unit=sp.Person()
    )
    shares = [
        captured(rows, mechanism.release(rows, row_norm=1.0, seed=seed, person=names).subspace.basis)
        for seed in range(runs)
    ]
    return float(np.mean(shares))


def main(runs: int) -> list[tuple[str, float, float]]:
    """Return the name, the measured share and the bar of each case."""
    logging.getLogger("streampca.curator").setLevel(logging.ERROR)  # of weights, for each run
    found = []
    for number, name in enumerate(WORLDS):
        for epsilon, bars in BARS.items():
            found.append((f"{name}; epsilon {epsilon:g}", streamed(number, epsilon, runs), bars[number]))
        found.append((f"{name}; one release, epsilon {ONE_EPSILON:g}", released(number, runs), ONE_BARS[number]))
    return found


if __name__ == "__main__":
    missed = 0
    for case, share, bar in main(int(sys.argv[1]) if len(sys.argv) > 1 else 40):
        missed += share < bar
        print(f"{case:<70} {share:.3f}  (bar {bar:.3f}){'  MISSED' if share < bar else ''}")
    sys.exit(1 if missed else 0)
