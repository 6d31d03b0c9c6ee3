"""Tests of the hypothesis that numbers are independent and standard normal, and their chances to miss a mutant.

Every p-value is valid for finite samples: the distribution of each statistic is known exactly, or bounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special, stats

from streampca.linalg.types import FloatArray, IntArray

Runs = Sequence[FloatArray]
#: Coordinates of two runs, or of a coordinate in all of them, that are compared with each other.
_MOST = 500
#: Numbers smaller than this count as no noise, and such differences as equal noise.
_SMALL = 1e-3
#: Number of p-values of `p_values`, and the most sums of squares in its "variance".
_TESTS, _SUMS = 9, 6
#: Standard deviations of a sum of n products at which `_follows` has most power: its x is this over sqrt(n).
_RATE = 8.0


def p_values(runs: Runs, busy: Sequence[bool]) -> dict[str, float]:
    """Return p-values of the hypothesis that all numbers of (T, n) runs are independent standard normals.

    T and n may differ from run to run, and T may depend on the numbers of earlier times: the numbers of one time, over
    the runs that reach it, follow the law nonetheless. ``busy`` marks the runs of busy rows.
    """
    shortest, width = (min(run.shape[axis] for run in runs) for axis in (0, 1))
    z = np.array([run[:shortest, :width] for run in runs])  # (R, T, n)
    every = np.concatenate([run.reshape(-1) for run in runs])
    # Numbers by time, (T, columns of all runs); nan where a run is shorter.
    times = np.full((max(map(len, runs)), len(runs), width), np.nan)
    for i, run in enumerate(runs):
        times[: len(run), i] = run[:, :width]
    times = times.reshape(len(times), -1)
    counts = np.isfinite(times).sum(axis=1)
    halves = [z[np.array(busy) == half] for half in set(busy)]
    cells = [np.nansum(times, axis=1) / np.sqrt(counts), every.sum(keepdims=True) / math.sqrt(every.size)]
    cells += [(half.sum(axis=0) / math.sqrt(len(half))).reshape(-1) for half in halves]
    # Sums of squares are chi-squares and sums over the root of their number standard normal. No limit theorem is used,
    # so the p-values hold for the few runs of a quick audit.
    size = [_variance(np.sum(every**2, keepdims=True), every.size), _variance(np.nansum(times**2, axis=1), counts)]
    # Sums of squares over all runs and times of a coordinate, and over all times and coordinates of a run.
    size += [_variance(np.sum(z**2, axis=axes), z.size // z.shape[3 - sum(axes)]) for axes in ((0, 1), (1, 2))]
    size += [_variance(np.sum(half**2, axis=(0, 2)), len(half) * width) for half in halves]
    # P(|z| < s) is at most s sqrt(2 / pi), so the count of small numbers is at most binomial.
    small = int((np.abs(every) < _SMALL).sum())
    chosen = every if every.size <= 20_000 else every[:: every.size // 10_000]
    return {
        "variance": min(1.0, len(size) * min(size)),
        "mean": min(1.0, len(cells) * min(_normal(cell) for cell in cells)),
        "shape": float(stats.kstest(chosen, "norm", method="asymp").pvalue),
        "no noise": float(stats.binom.sf(small - 1, every.size, _SMALL * math.sqrt(2.0 / math.pi))),
        "outliers": _normal(every),
        "equal in time": min(1.0, 2.0 * min(_correlated(times), _follows(times[:-1:2], times[1::2]))),
        "equal over coordinates": _correlated(np.moveaxis(z, 2, 0).reshape(width, -1)[:_MOST]),
        "equal over runs": _correlated(z.reshape(len(z), -1)[:_MOST]),
        "repeated in runs": _repeated(z.reshape(len(z), -1)),
    }


def chance_to_miss(runs: Runs, level: float) -> dict[str, float]:
    """Return upper bounds on the chances to miss mutants of lawful noise, by the laws of the statistics of `p_values`.

    Only the shapes of the runs count; ``level`` is the significance of all tests of them together.
    """
    lengths, widths = [len(run) for run in runs], {run.shape[1] for run in runs}
    t, width, count = max(lengths), min(widths), sum(run.size for run in runs)
    each = level / _TESTS
    # Half the noise: the sum of all N squares is a quarter of a chi-square of N degrees.
    half = stats.chi2.sf(4.0 * stats.chi2.ppf(0.5 * each / _SUMS, count), count)
    # Last release bare: a time or a coordinate without noise has the sum of squares 0, and so the p-value 0. If runs
    # differ in their numbers of coordinates or times, there is one zero a run.
    bare = len(set(lengths)) == 1 and (t > 1 or len(widths) == 1)
    zeros = 0.0 if bare else stats.binom.sf(len(runs) - 1, count, _SMALL * math.sqrt(2.0 / math.pi))
    # Noise repeated: the correlation of each of t // 2 independent pairs of times is the root of a chi-square, and the
    # sum of all their products is a chi-square. In runs of one time, all differences are 0.
    if t > 1:
        limit = special.ndtri(0.5 * each / (t * (t - 1)))
        pairs = [sum(length > i for length in lengths) * width for i in range(1, t, 2)]
        x = _rate(sum(pairs))
        # S = V in `_follows` where each time repeats the one before.
        together = stats.chi2.cdf(-math.log(0.25 * each) / (x - 0.5 * x * x), sum(pairs))
        repeated = float(min(together, np.prod(stats.chi2.cdf(limit**2, pairs))))
    else:
        twice = len(runs) // 2 * width
        repeated = float(0.5 * each < (_SMALL / math.sqrt(math.pi)) ** twice)
    return {"half the noise": float(half), "last release bare": float(zeros >= each), "noise repeated": repeated}


def across_groups(groups: Sequence[Runs]) -> float:
    """Return the p-value of the hypothesis that coordinates of different groups are uncorrelated."""
    # Runs are compared by place: groups that some runs lack have no counterparts.
    if len(groups) < 2 or len({len(runs) for runs in groups}) > 1:
        return 1.0
    width = [min(run.shape[1] for run in runs) for runs in groups]
    both = [np.concatenate([run[:, :n] for run in runs]) for runs, n in zip(groups, width, strict=True)]
    return _correlated(np.concatenate(both, axis=1).T[:_MOST]) if len({len(one) for one in both}) == 1 else 1.0


class Spectrum:
    """Lower bounds on mu from standardized noise only, (T, n) a run; if ``joined``, each run is one row and T is 1.

    With X the noise, (T, N) with independent columns of any covariance Sigma, and S = X X^T, the ratio
    a^T Sigma^-1 a / a^T S^-1 a is chi-square of N - T + 1 degrees, for each column a of the difference of two
    neighbors. If columns are few, the shape of the covariance is that of the law and only the scale is measured:
    a^T a / tr S is chi-square of N T degrees.
    """

    def __init__(self, runs: Runs, *, joined: bool = False) -> None:
        noise = np.concatenate([run.reshape(1, -1) if joined else run for run in runs], axis=1)
        self.t, self.n = noise.shape
        self.values, self.vectors = np.linalg.eigh(noise @ noise.T)
        self.values = np.maximum(self.values, 1e-13 * max(float(self.values[-1]), 1e-300))

    def mu_squared(self, moved: FloatArray, error: float) -> float:
        """Return less than mu**2 of a difference, (T, n) in units of the noise, but for the probability ``error``."""
        moved = moved[:, np.abs(moved).any(axis=0)]
        if not moved.size or self.n < 4:
            return 0.0
        if self.t > 1 and self.n < 200 * self.t:
            return float(stats.chi2.ppf(error, self.n * self.t) * np.sum(moved**2) / self.values.sum())
        columns = 1 if self.t == 1 else moved.shape[1]
        sizes = (self.vectors.T @ moved) ** 2 / self.values[:, None]
        return float(stats.chi2.ppf(error / columns, self.n - self.t + 1) * sizes.sum())


def _variance(squares: FloatArray, degrees: IntArray | int) -> float:
    """Return the least two-sided p-value of sums of squares, by Bonferroni."""
    tails = np.minimum(stats.chi2.sf(squares, degrees), stats.chi2.cdf(squares, degrees))
    return float(min(1.0, 2.0 * tails.size * tails.min()))


def _normal(values: FloatArray) -> float:
    """Return the least two-sided p-value of standard normals, by Bonferroni."""
    return float(min(1.0, 2.0 * values.size * special.ndtr(-np.abs(values).max())))


def _correlated(rows: FloatArray) -> float:
    """Return the p-value that no two rows are correlated. A row may be nan where an earlier one is; nan is omitted."""
    if len(rows) < 2:
        return 1.0
    # The product with another row, divided by the norm of that one, is standard normal.
    there = np.isfinite(rows)
    known = np.where(there, rows, 0.0)
    products, norms = known @ known.T, np.sqrt(there.astype(np.float64) @ (known**2).T)
    return _normal((products / np.maximum(norms, 1e-300))[np.tril_indices(len(rows), -1)])


def _follows(before: FloatArray, after: FloatArray) -> float:
    """Return the p-value that numbers are unlike those of the time before, over all these pairs of times together."""
    # For S the sum of all products and V that of the squares of the earlier numbers, exp(x S - x**2 V / 2) is a
    # martingale for every x, however a run ends: it exceeds 1 / p with probability at most p.
    there = np.isfinite(after)
    before, after = (np.where(there, part, 0.0) for part in (before[: len(after)], after))
    x = _rate(int(there.sum()))
    size, square = abs(float(np.vdot(before, after))), float(np.vdot(before, before))
    return float(min(1.0, 2.0 * math.exp(min(0.0, 0.5 * x * x * square - x * size))))


def _rate(count: int) -> float:
    """Return the x of `_follows` for a sum of ``count`` products."""
    return _RATE / math.sqrt(max(count, _RATE**2))


def _repeated(rows: FloatArray) -> float:
    """Return the p-value that no numbers of one run recur in another: in runs of a pair, or in any two."""
    if len(rows) < 2:
        return 1.0
    # A difference of two normals has density at most 1 / sqrt(4 pi), so it is below s with chance s / sqrt(pi) at most.
    near = int((np.abs(rows[1::2] - rows[: len(rows) // 2 * 2 : 2]) < _SMALL).sum())
    found = float(stats.binom.sf(near - 1, rows[1::2].size, _SMALL / math.sqrt(math.pi)))
    if rows.shape[1] < 3:  # fewer numbers coincide on their lattice by chance
        return found
    rows = rows[:_MOST]
    squares = np.einsum("ij,ij->i", rows, rows)
    apart = (squares[:, None] + squares - 2.0 * rows @ rows.T)[np.tril_indices(len(rows), -1)]
    # The allowance covers the cancellation in `apart`, about 1e-10 in each square.
    least = 0.5 * (math.sqrt(max(0.0, float(apart.min()))) + 1e-5 * math.sqrt(rows.shape[1])) ** 2
    return float(min(1.0, 2.0 * min(found, apart.size * float(stats.chi2.cdf(least, rows.shape[1])))))
