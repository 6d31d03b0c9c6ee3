"""Mechanisms on the Gram matrix that adapt to short rows, by clipping, and to decaying spectra, by a linear map."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streampca.linalg.lattice import GramSum, coarsen, onto_ball
from streampca.linalg.svec import pack_entries, svec_size, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.mechanisms import norm_maps as maps
from streampca.mechanisms.base import BudgetedMechanism, Mechanism
from streampca.mechanisms.covariance import MatrixLaplaceCovariance
from streampca.mechanisms.recentering import MEAN_SHARE, SENSITIVITY, EntryNoise, Recentering, ball_noise, sum_and_count
from streampca.privacy.budget import DELTA, Adjacency, Budget
from streampca.privacy.guarantee import laplace_delta
from streampca.privacy.outlet import LatticeSum, Outlet
from streampca.release.clear import NoiseLaw
from streampca.release.release import Release
from streampca.release.terms import Terms

#: Shares of mu**2: histogram of norms, lost energy, first and second Gram matrix. They add up to 1.
NORMS_SHARE, LOST_SHARE, FIRST_SHARE, SECOND_SHARE = 0.02, 0.04, 0.30, 0.64
#: Shares of epsilon with Laplace noise: histogram of norms, lost energy; the Gram matrix has the rest.
PURE_NORMS_SHARE, PURE_LOST_SHARE = 0.03, 0.08
#: Rows, times epsilon, below which norms are not estimated: the noise in a count would exceed a tenth of the rows.
_FEWEST = 500
#: `adaptive_mechanism` selects Laplace noise where its variance is below this share of that of Gaussian noise. Maps
#: gain about the rest.
_LESS = 2.0 / 3.0
#: Least epsilon of a centered mechanism of pure epsilon, if delta may be spent.
_PURE_MEAN = 2.0


@dataclass(frozen=True, kw_only=True)
class AdaptiveCovariance(BudgetedMechanism):
    """Gram matrix plus Gaussian noise that adapts to short rows and to decaying spectra.

    A part of the budget is spent on the lengths of the rows and the directions in which they vary. The rest is spent on
    rows clipped to a smaller norm, or mapped so that directions of little variance have larger weights.

    Parameters
    ----------
    n_components, epsilon, delta, adjacency : see `Mechanism`.
    center : spend .1 of mu**2 on a private mean (`mechanisms.recentering`), and .9 on the rows about it. None means
        True. A zero row then counts as absent under zero-out: it is not one more row far from the mean.

    Notes
    -----
    *Theorem.* All releases together are mu-GDP, with the exact ``mu(epsilon, delta)`` of Balle and Wang (2018, Theorem
    8), hence (epsilon, delta)-DP per row.

    *Proof.* `recentering` has that for the mean; with it, mu**2 below is .9 of that of the budget, and rows are mapped.
    Up to four vectors meet Gaussian noise, one after the other. Given those before it, number i is mu_i-GDP,
    with ``mu_i**2`` the share of mu**2 in brackets, and adaptive composition adds the squares (Dong, Roth and Su 2022,
    Corollary 2). Under zero-out a row moves each by at most 1 in Euclidean or Frobenius norm:

    1. The histogram of row norms [.02]. A row adds 1 to one count, a zero row to none. It gives a radius rho.
    2. The lost energy, the sum of ``max(|x|**2 - rho**2, 0)`` [.04].
    3. The Gram matrix of rows divided by rho, a function of 1 and 2, and each clipped onto the unit ball [.30].
    4. The Gram matrix of ``M x`` clipped onto the unit ball, M a function of 1 to 3 [.64].

    If 1 gives rho = 1 nothing can be lost: there is no 2, and 4 has .68. In both cases the shares of the later vectors
    add up to .98. Under replace the bounds are sqrt(2), 1, sqrt(2) and sqrt(2). All else is post-processing.

    *How rho and M are chosen.* rho minimizes the energy that clipping loses plus the spectral norm of the noise; it is
    1 if long rows too few for the histogram show in the lost energy (`norm_maps.NormEstimate`). M has the least loss in
    simulated releases (`norm_maps.Model`). If 3 shows a direction that the combination of 3 and 4 lacks, only 3 is
    released (``details["released"]``).

    *Error bars.* ``release.noise_std`` is None: with a map, the noise is not alike in all entries. Without one it is a
    weighted mean of two Gaussian matrices, 3 and 4. ``release.details["noise_scale"]`` is the larger of their standard
    deviations s. On a fixed space of dimension m, each exceeds ``s q_m(alpha / 2)`` with probability at most alpha / 2,
    4 also given 3, so that one of 3, 4 and their mean does with at most alpha, whichever is released.
    ``release.stands_out`` tests components with that, and is None with a map. Clipping biases the Gram matrix towards
    zero, and that bias is in no error bar. Lengths and energies in ``release.details`` are in units of row_norm and its
    square; about a mean, of ``1 + center_norm`` times that. A release about the mean states the variance of the noise
    between any two of its eigenvectors, so that ``release.estimates`` has approximate error bars. Components that stand
    out are of the rows about the private mean: its error may add one.

    *When.* It gains where rows are short or of uneven norm, or the spectrum decays. Where nothing is to be gained, or
    stage one resolves no direction (few rows, a small epsilon), it is `GaussianCovariance` at .94 to .98 of mu**2.
    """

    center: bool = None  # type: ignore[assignment]  # None is resolved by `Configuration`

    is_gaussian = True
    theorem = "adaptive composition of Gaussian mechanisms: norms, lost energy and two clipped Gram matrices"
    citation = "Dong, Roth and Su 2022, Corollary 2; after Dong, Liang and Yi, NeurIPS 2022"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.center:
            object.__setattr__(self, "theorem", f"{self.theorem}, of rows about a mean released before")

    def noise_law(self, n_features: int) -> NoiseLaw:
        return NoiseLaw("mean")

    def _gram_std(self, share: float) -> float:
        """Standard deviation of a diagonal entry of the noise in the Gram matrix of rows in the unit ball."""
        return self.budget.sensitivity() / (self._mu * math.sqrt(share))

    @property
    def _mu(self) -> float:
        """The part of mu that is left after the mean."""
        return self.mu * math.sqrt(1.0 - MEAN_SHARE) if self.center else self.mu

    @property
    def mean_std(self) -> float:
        """Standard deviation of the noise in each entry of the sum and the count of the rows."""
        return SENSITIVITY[self.adjacency] / (self.mu * math.sqrt(MEAN_SHARE))

    def constants(self, n_features: int) -> tuple[float, ...]:
        # Standard deviations: of each count of the histogram of norms (a row moves as many counts as outer products),
        # of the lost energy, and of the Gram matrices. The last is that of the second one without a lost energy.
        grams = (self._gram_std(share) for share in (FIRST_SHARE, SECOND_SHARE, LOST_SHARE + SECOND_SHARE))
        others = self._gram_std(NORMS_SHARE), 1.0 / (self._mu * math.sqrt(LOST_SHARE)), *grams
        # With a mean, the first is that of the sum and the count.
        return (self.mean_std, *others) if self.center else others

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        n_rows, k, about = float(len(rows)), self.n_components, None
        if self.center:
            exact, std = sum_and_count(rows, self.adjacency), self.mean_std
            noisy = outlet.gram("mean", exact, rows.shape[1], std)
            about = Recentering.of(noisy, terms.count(t - len(rows) + 1, t), std, self.adjacency)
            rows, n_rows = about.mapped(rows), about.divisor
        d = rows.shape[1]
        norms_std, lost_std, first_std, second_std, second_alone_std = self.constants(d)[-5:]
        noises = {"norms": norms_std, "lost": lost_std}
        estimate = maps.NormEstimate.of(
            rows, lambda kind, values: outlet.gaussian(kind, values, noises[kind], maps.GRID), norms_std, lost_std,
            first_std * math.sqrt(2.0 * d), self._gram_std(1.0) * math.sqrt(2.0 * d), n_rows,
        )  # fmt: skip
        norms, radius = estimate.norms, estimate.radius
        # Stage one: the Gram matrix of clipped rows. Without a lost energy, stage two has its share, too.
        if not estimate.has_lost_energy:
            second_std = second_alone_std
        first = self._gram(rows, np.full(d, 1.0 / radius**2), outlet, "first", first_std)
        per_row = first_std / n_rows
        values, vectors = np.linalg.eigh(first)
        values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1])
        # Stage two: the map, and the Gram matrix of the mapped rows.
        if norms is None or k == d:
            choice = maps.Choice(maps.Map(f"radius {radius:.4g}", np.full(d, 1.0 / radius**2), radius), 1.0, None)
        else:
            noise = per_row, second_std / n_rows
            choice = maps.Model(values / n_rows, k, radius, norms, noise, estimate.hidden / n_rows).choose()
        weights, factor = choice.map.weights, choice.factor
        spread, first_spread = maps.entry_std(weights, second_std), radius**2 * per_row * n_rows
        entries = EntryNoise(first_spread, maps.combined_std(spread, first_spread, factor), vectors)
        if choice.map.radius is not None:
            second = self._gram(rows, weights, outlet, "second", second_std)
            gram = maps.combined(second, spread, first, first_spread, factor)
        else:
            second = self._gram(rows @ vectors, weights, outlet, "second", second_std)
            gram = vectors @ maps.combined(second, spread, np.diag(values), first_spread, factor) @ vectors.T
        released = "combination"
        scale = None if choice.map.radius is None else max(float(spread[0, 0]), factor * first_spread)
        # A map chosen wrongly may clip a direction away that stage one shows.
        if choice.map.radius != radius and k < d:
            found, expected = maps.energy_outside(gram, first, k)
            if found - expected > maps.CLEAR * first_spread * math.sqrt(0.5 * d):
                gram, released, scale, entries = first, "first stage", first_spread, EntryNoise(first_spread)
        details = {
            "mechanism": type(self).__name__, **estimate.details, "clip_radius": radius, "map": choice.map.name,
            "predicted_loss": choice.loss, "released": released, "noise_scale": scale,
        }  # fmt: skip
        packed = coarsen(pack_entries(0.5 * (gram + gram.T)), first_spread)
        fields: dict[str, Any] = {"packed_gram": packed, "details": details}
        if about is not None:
            parts = {"norms": NORMS_SHARE, "lost": LOST_SHARE, "first": FIRST_SHARE, "second": SECOND_SHARE}
            if not estimate.has_lost_energy:
                parts["second"] += parts.pop("lost")
            fields = about.fields(packed, k, terms, details, entries, parts)
        return Release(t=t, n_components=k, terms=terms, **fields)

    def _gram(self, rows: FloatArray, weights: FloatArray, outlet: Outlet, kind: str, std: float) -> FloatArray:
        """Release the Gram matrix of the rows times sqrt(weights), clipped to norm 1, and invert the weights."""
        d, roots = rows.shape[1], np.sqrt(weights)
        # Clipping comes after the map, so one row moves the matrix by at most 1 whatever the weights are.
        clipped = GramSum.of(onto_ball(rows * roots))
        noisy = unpack_entries(outlet.gram(kind, clipped, svec_size(d), std), d)
        return np.asarray(noisy / (roots[:, None] * roots))


@dataclass(frozen=True, kw_only=True)
class AdaptiveLaplaceCovariance(Mechanism):
    """Gram matrix of rows clipped to an estimated norm, plus the noise of `MatrixLaplaceCovariance`: pure epsilon.

    A part of epsilon is spent on the lengths of the rows. Clipping them to a radius rho multiplies the noise by rho**2.

    Parameters
    ----------
    n_components, epsilon, adjacency : see `Mechanism`.
    center : spend .1 of epsilon on a private mean, as `AdaptiveCovariance` does of mu**2. None means True.

    Notes
    -----
    *Theorem.* All releases together are (epsilon, 0)-DP per row. The Laplace noise of 1 and 2 below is drawn in
    floating point, at a delta of the guarantee's ``floating_delta``.

    *Proof.* `recentering` has that for the mean, released with the noise of `ball_noise`; with it, epsilon below is .9
    of that of the budget, and rows are mapped. Up to three parts, each with a share of epsilon in brackets; each is
    pure given those before it (basic adaptive composition). Under zero-out:

    1. The histogram of row norms with Laplace noise [.03]. A row adds 1 to one count, a zero row to none: l1
       sensitivity 1.
    2. The lost energy, the sum of ``max(|x|**2 - rho**2, 0)``, with Laplace noise [.08]: a row moves it by at most 1.
       rho is a function of 1.
    3. The Gram matrix of rows divided by rho, a function of 1 and 2, and clipped onto the unit ball, with the noise of
       `MatrixLaplaceCovariance` [.89, or .97 without 2].

    If 1 gives rho = 1, there is no 2. Below 500 / epsilon rows, a public number, there is only 3, with all of epsilon.
    Under replace the sensitivities are 2 in 1 and 1 in 2, and 3 has the noise for replace. All else is post-processing.

    *rho, error bars and details*: as in `AdaptiveCovariance`, without maps. Long rows with about 40 / epsilon of
    energy, or less, may stay hidden, and are then clipped: do not use it where a few rows matter most.
    """

    n_components: int
    epsilon: float
    adjacency: Adjacency = "zero-out"
    center: bool = None  # type: ignore[assignment]  # None is resolved by `Configuration`

    theorem = "composition of Laplace mechanisms: norms, lost energy and the clipped Gram matrix"
    citation = "Dwork, McSherry, Nissim, Smith 2006; after Jiang, Xie, Zhang, AAAI 2016, Algorithm 2"
    norms_scale: float = field(init=False, repr=False, compare=False)  # of the noise in each count of the norms
    lost_scale: float = field(init=False, repr=False, compare=False)  # of the noise in the lost energy

    def __post_init__(self) -> None:
        super().__post_init__()
        # A row changes one count of the histogram, under replace two, and the lost energy.
        counts, left = 2 if self.adjacency == "replace" else 1, self._left
        vars(self).update(
            floating_delta=laplace_delta(counts + 1, (PURE_NORMS_SHARE + PURE_LOST_SHARE) * left),
            norms_scale=counts / (PURE_NORMS_SHARE * left), lost_scale=1.0 / (PURE_LOST_SHARE * left),
        )  # fmt: skip
        if self.center:
            theorem = f"{self.theorem}, of rows about a mean released before by the K-norm mechanism"
            vars(self).update(theorem=theorem, citation=f"{self.citation}; Hardt, Talwar, STOC 2010")

    @property
    def _left(self) -> float:
        """The part of epsilon that is left after the mean."""
        return (1.0 - MEAN_SHARE) * self.epsilon if self.center else self.epsilon

    @property
    def mean_scale(self) -> float:
        """Factor of `ball_noise` in the sum and the count of the rows."""
        return SENSITIVITY[self.adjacency] / (MEAN_SHARE * self.epsilon)

    def on_gram(self, stages: int) -> MatrixLaplaceCovariance:
        """Return the mechanism for the Gram matrix of the clipped rows over rho, after 0, 1 or 2 earlier releases."""
        share = 1.0 - (0.0, PURE_NORMS_SHARE, PURE_NORMS_SHARE + PURE_LOST_SHARE)[stages]
        epsilon = share * self._left
        return MatrixLaplaceCovariance(n_components=self.n_components, epsilon=epsilon, adjacency=self.adjacency)

    def noise_law(self, n_features: int) -> NoiseLaw:
        # Given the estimate of the norms, the noise is matrix Laplace noise; its scale is stated by the release.
        return NoiseLaw("matrix-laplace")

    def constants(self, n_features: int) -> tuple[object, ...]:
        # The last three are the scales for the Gram matrix, by the number of stages before it.
        scales = self.norms_scale, self.lost_scale, *(self.on_gram(stages).scale(n_features) for stages in range(3))
        return (self.mean_scale, *scales) if self.center else scales

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        n_rows, about, stages = len(rows), None, 0
        estimate = maps.NormEstimate(None, 1.0, 0.0, {"rows": n_rows, "lost_energy": 0.0})
        count = float(n_rows)
        if self.center:
            exact, size, b = sum_and_count(rows, self.adjacency), rows.shape[1], self.mean_scale
            mean_std = b * math.sqrt(size + 1.0)
            noisy = outlet.release("mean", exact, lambda draws: b * ball_noise(size, draws), mean_std)
            about = Recentering.of(noisy, terms.count(t - n_rows + 1, t), mean_std, self.adjacency)
            rows, count = about.mapped(rows), about.divisor
        d = rows.shape[1]
        # The number of rows is public, so a rule may depend on it.
        if n_rows * self.epsilon >= _FEWEST:
            scales = {"norms": self.norms_scale, "lost": self.lost_scale}
            stds = {kind: math.sqrt(2.0) * scale for kind, scale in scales.items()}
            noise_norm = self.on_gram(2).spectral_error(d)

            def release(kind: str, values: FloatArray) -> FloatArray:
                scale, exact = scales[kind], LatticeSum(values, maps.GRID)
                return outlet.release(kind, exact, lambda draws: scale * draws.laplace(values.size), stds[kind])

            estimate = maps.NormEstimate.of(rows, release, stds["norms"], stds["lost"], noise_norm, noise_norm, count)
            stages = 2 if estimate.has_lost_energy else 1
        radius = estimate.radius
        matrix = self.on_gram(stages)
        clipped = GramSum.of(onto_ball(rows / radius))
        packed = outlet.release("gram", clipped, lambda draws: matrix.noise(d, draws), matrix.noise_std(d))
        # The noise of the mechanism is for rows of norm 1; dividing rows by rho multiplies it by rho**2 afterwards.
        packed = coarsen(radius**2 * packed, radius**2 * matrix.noise_std(d))
        scale = radius**2 * matrix.scale(d)
        details = {"mechanism": type(self).__name__, **estimate.details, "clip_radius": radius, "noise_scale": scale}
        fields: dict[str, Any] = {"packed_gram": packed, "details": details}
        if about is not None:
            # Entries of matrix Laplace noise have the variances of Gaussian noise: half as large off the diagonal.
            noise = EntryNoise(radius**2 * matrix.noise_std(d))
            parts = dict([("norms", PURE_NORMS_SHARE), ("lost", PURE_LOST_SHARE)][:stages])
            parts["gram"] = 1.0 - sum(parts.values())
            fields = about.fields(packed, self.n_components, terms, details, noise, parts)
        return Release(t=t, n_components=self.n_components, terms=terms, **fields)


def adaptive_mechanism(
    n_features: int, *, n_components: int, epsilon: float, delta: float = DELTA, adjacency: Adjacency = "zero-out",
    center: bool | None = None,
) -> AdaptiveCovariance | AdaptiveLaplaceCovariance:  # fmt: skip
    """Return the adaptive mechanism with less noise for a number of features. A public rule: it reads no row.

    It is `AdaptiveLaplaceCovariance`, which spends no delta, where the noise of `MatrixLaplaceCovariance` has less than
    2/3 of the variance of that of `GaussianCovariance`, under zero-out ``d + 1 < 2/3 (epsilon / mu)**2``: up to 7, 9,
    10 and 13 features at delta = 1e-6 and epsilon = .1, .3, 1 and 3; also where delta is 0. Otherwise it is
    `AdaptiveCovariance`, whose maps gain about the third. About a mean, which takes a tenth of either budget, that
    rule holds from epsilon 2 on, and `AdaptiveCovariance` is taken below: the noise of a pure mean is about
    ``sqrt(10 d) mu / epsilon`` times as large, which matters where means are hardly resolved (docs/utility).
    """
    budget, given = Budget(epsilon, delta, adjacency), {"adjacency": adjacency, "center": center}
    pure = AdaptiveLaplaceCovariance(n_components=n_components, epsilon=epsilon, **given)  # type: ignore[arg-type]
    laplace = MatrixLaplaceCovariance(n_components=n_components, epsilon=epsilon, adjacency=adjacency)
    if delta == 0.0:
        return pure
    is_quiet = laplace.noise_std(n_features) ** 2 < _LESS * (budget.sensitivity() / budget.mu) ** 2
    if is_quiet and (epsilon >= _PURE_MEAN or not pure.center):
        return pure
    return AdaptiveCovariance(n_components=n_components, epsilon=epsilon, delta=delta, **given)  # type: ignore[arg-type]
