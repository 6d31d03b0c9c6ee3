"""Drift of released subspaces, and anomaly scores of rows, for river.

>>> from river import datasets
>>> from streampca.river import PrivateBlockPCA
>>> from streampca.river_monitors import SubspaceDrift
>>> model, drift = PrivateBlockPCA(n_components=2, row_norm=500.0, block=500), SubspaceDrift()
>>> for x, _ in datasets.ImageSegments():
...     model.learn_one(x)
...     drift.update(model.release)
>>> drift.drift_detected
False
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from river import base
from river.base.anomaly_detector import AnomalyDetector
from scipy.optimize import isotonic_regression

from streampca.errors import BadParameterError, UsageError
from streampca.linalg.counts import check_count
from streampca.linalg.eigen import top_eigh
from streampca.linalg.types import FloatArray
from streampca.release.estimates import Estimates
from streampca.release.release import Release, rows_summed
from streampca.river import PrivatePCA, RiverAdapter

__all__ = ["SubspaceAnomaly", "SubspaceDrift"]


class SubspaceDrift(base.DriftDetector):
    """Test of whether the subspace of the latest block differs from that of the previous blocks by more than chance.

    Each release is tested against the sum of all releases since the last alarm, and joins it unless it raises an
    alarm. The statistic is the sum of squared sines of the principal angles between the two subspaces.

    Parameters
    ----------
    false_alarm : probability of an alarm at one release of unchanged rows, see Notes.
    simulations : draws from the law of the statistic without change, at least ``1 / false_alarm``.
    seed : seed of these draws. It may be public: they depend on rows only through releases.

    Attributes
    ----------
    drift_detected : whether the latest release raised an alarm.
    statistic, p_value : of the latest test (p by simulation, which stops early if it is large: Besag and Clifford,
        Biometrika 78, 1991); nan and 1 before the first.

    Notes
    -----
    *Privacy.* Post-processing: the guarantee of the releases covers alarms, statistics and p-values.

    *Null hypothesis.* Rows of both sides are independent with one covariance C. A released matrix is then n C, plus
    the sampling error of Gaussian rows (a Wishart matrix, in its normal approximation), plus noise of the stated law
    (of centered releases, at their upper bound `streampca.Release.noise_std`). Both are simulated around the shrunk
    estimate of C from both sides.

    *Rate.* Approximate, because C is estimated and rows are clipped: without a gap after the k-th eigenvalue it is
    ``false_alarm``, with a gap less. Dependent rows alarm more often, and so do heavier tails than Gaussian ones if
    noise does not hide their sampling error.

    *Releases.* Only disjoint blocks with independent noise are valid: `PrivateBlockPCA`, or a stream of
    `streampca.Tumbling`. Running sums and windows are refused.
    """

    def __init__(self, false_alarm: float = 0.01, *, simulations: int = 400, seed: int = 0) -> None:
        super().__init__()
        check_count("simulations", simulations)
        if not (isinstance(false_alarm, (int, float)) and 1.0 / (simulations + 1) <= false_alarm < 1.0):
            raise BadParameterError(
                "false_alarm", false_alarm,
                f"a number below 1 and at least 1 / (simulations + 1) = {1.0 / (simulations + 1):.3g}",
                advice="Increase simulations="
            )  # fmt: skip
        self.false_alarm, self.simulations, self.seed = false_alarm, simulations, seed
        self.p_value, self.statistic = 1.0, math.nan
        self._seen = 0
        self._before: _Sum | None = None

    def update(self, x: Release | None) -> None:
        """Test a release. None and a repeated release only reset the alarm.

        Raises `UsageError` unless it is the release of a block, with a Gram matrix and noise of a stated law.
        """
        self._drift_detected = False
        if x is None or x.t == self._seen:
            return
        if x.packed is None or x.noise_std is None or not {"mechanism", "rows"} <= x.details.keys():
            raise UsageError(
                "drift needs releases of disjoint blocks of a public number of rows, with Gram matrices and noise of a "
                "stated law; use PrivateBlockPCA, or Tumbling(GaussianCovariance(...)), with a number of rows"
            )
        self._seen = x.t
        block, before = _Sum(np.array(x.gram), x.noise_std, rows_summed(x)), self._before
        if before is None or before.gram.shape != block.gram.shape:
            self._before = block
            return
        self._test(before, block, x)
        self._before = block if self._drift_detected else before.plus(block)

    def _test(self, before: _Sum, block: _Sum, release: Release) -> None:
        k, both = release.n_components, before.plus(block)
        shrunk = Estimates(
            gram=both.gram, noise_std=both.noise_std, n_components=k, rows=math.ceil(both.rows),
            row_norm=release.row_norm,
        ).shrunk_gram  # fmt: skip
        # The laws do not depend on the orthonormal basis: use the eigenvectors.
        variances = np.maximum(np.linalg.eigvalsh(shrunk)[::-1], 0.0) / both.rows
        noise, after = both.noise_std / both.rows, np.arange(variances.size) >= k
        # The gap after the k-th eigenvalue is narrowed by one standard deviation on each side.
        sides = np.where(after, 1.0, -1.0)
        # Equal eigenvalues of n rows spread by 2 sqrt(d / n) of their value (Marchenko and Pastur 1967). Values that
        # this spread may have separated from the other side of the gap are assumed equal, which closes the gap.
        spread = variances + sides * np.hypot(noise, variances * 2.0 * math.sqrt(variances.size / both.rows))
        equal = np.where(after, spread >= spread[k - 1], spread <= spread[min(k, variances.size - 1)])
        narrowed = variances + sides * np.hypot(noise, variances * math.sqrt(2.0 / both.rows))
        narrowed[equal] = variances[equal].mean() if equal.any() else 0.0
        variances = np.maximum(isotonic_regression(narrowed, increasing=False).x, 0.0)
        self.statistic = _distance(before.gram, block.gram, k)
        source = np.random.default_rng([self.seed, release.t])
        # Besag and Clifford: with h - 1 draws beyond the statistic among n, p = h / (n + 1). Stop when p is too large.
        most, beyond, drawn = self.false_alarm * (self.simulations + 1), 0, 0
        while drawn < self.simulations and beyond + 1 <= most:
            drawn += 1
            beyond += _distance(before.drawn(variances, source), block.drawn(variances, source), k) >= self.statistic
        self._drift_detected = beyond + 1 <= most
        self.p_value = (beyond + 1) / (drawn + 1) if self._drift_detected else beyond / drawn


@dataclass(frozen=True, eq=False)
class _Sum:
    """Released Gram matrix of ``rows`` rows, with the standard deviation of the noise on its diagonal."""

    gram: FloatArray
    noise_std: float
    rows: float

    def plus(self, other: _Sum) -> _Sum:
        # The noise of the two is independent, so that variances add.
        return _Sum(self.gram + other.gram, math.hypot(self.noise_std, other.noise_std), self.rows + other.rows)

    def drawn(self, variances: FloatArray, source: np.random.Generator) -> FloatArray:
        """Draw a matrix of as many Gaussian rows with the same noise, in the eigenvectors of their covariance."""
        # Normal approximation of a Wishart matrix: entry (i, j) has variance n v_i v_j; twice that on the diagonal.
        # Normals of a symmetric matrix G: variance 1 on the diagonal, 1/2 elsewhere, in both terms.
        std, normals = np.sqrt(variances), source.standard_normal((2, variances.size, variances.size))
        sampling, noise = 0.5 * (normals + normals.transpose(0, 2, 1))
        sampling *= math.sqrt(2.0 * self.rows) * np.outer(std, std)
        return np.asarray(np.diag(self.rows * variances) + sampling + self.noise_std * noise)


def _distance(one: FloatArray, two: FloatArray, k: int) -> float:
    """Return the sum of squared sines of the angles between the leading subspaces of two symmetric matrices."""
    cosines = top_eigh(one, k)[1].T @ top_eigh(two, k)[1]
    return float(k - np.vdot(cosines, cosines))


@dataclass(eq=False, repr=False)
class SubspaceAnomaly(AnomalyDetector):
    """Squared distance of rows from the released subspace of ``pca``, a model of `streampca.river` that learns.

    **Scores are not private.** Each is an exact function of its row, and as sensitive; only the subspace is private.
    Distances are in the units of the stream (scaled by ``bounds``, if any) of rows neither clamped nor clipped, from
    the subspace through the private mean if ``pca`` is centered. 0 before the first release.

    Examples
    --------
    >>> from river import datasets
    >>> model = SubspaceAnomaly(PrivatePCA(n_components=3, row_norm=500.0, release_every=50))
    >>> for x, _ in datasets.ImageSegments():
    ...     model.learn_one(x)
    >>> usual = model.score_one(x)
    >>> model.score_one(x | {"hue-mean": 900.0}) > usual
    True
    """

    pca: RiverAdapter
    _: KW_ONLY

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"pca": PrivatePCA(n_components=1, row_norm=1.0)}

    def learn_one(self, x: dict[Any, Any]) -> None:
        self.pca.learn_one(x)

    def score_one(self, x: dict[Any, Any]) -> float:
        """Return the squared distance of a row from the subspace. **Not private**: as sensitive as the row."""
        release = self.pca.release
        if release is None:
            return 0.0
        row = self.pca.seen_one(x) - release.mapped_mean
        basis = release.subspace.basis
        return float(np.sum((row - basis @ (basis.T @ row)) ** 2))
