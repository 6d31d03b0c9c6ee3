"""Claims, computed a second time without the formulas of the calibration.

- *mu, epsilon and delta*: quadrature of the privacy loss.
- *Sums over time*: unit vectors in place of random ones give the matrix B of the noise as it runs. With A the sums,
  ``A^T (B B^T)^-1 A`` holds the cost of each row, and of pairs of rows of a person.
- *Sensitivities*: the largest move over a grid of pairs of rows.
- *Phases*: losses on the same rows add up; of losses on different rows the largest counts.

Each value is attained by neighbors, so a value above the claim refutes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import brentq
from scipy.spatial.distance import cdist

from streampca.linalg.centering import with_constant
from streampca.linalg.svec import PRESENCE
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.matrix_factorization.tree import ExactTree
from streampca.mechanisms.adaptive import AdaptiveCovariance, AdaptiveLaplaceCovariance
from streampca.mechanisms.covariance import GaussianCovariance, MatrixLaplaceCovariance
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.mechanisms.norm_maps import lost_energy, norm_counts
from streampca.papers.approximate_subspace import WIDTHS, ApproximateSubspace
from streampca.papers.covariance import LaplaceCovariance, WishartCovariance
from streampca.papers.doubling import DoublingFPL
from streampca.papers.subspace_perturbation import SubspacePerturbation
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Note
from streampca.processors.base import REWARD_WEIGHT
from streampca.processors.dp_pca import DPPCA
from streampca.processors.private_fpl import PrivateFPL, reward_scale
from streampca.processors.private_oja import PrivateOja
from streampca.processors.private_sketch import PrivateSketch
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.tumbling import Tumbling
from streampca.rows.bounds import PrivateBounds

#: Relative error of the values computed here.
ROUNDING = 1e-6
#: Inputs of a dense matrix, at most.
_INPUTS = 64
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
Density = Callable[[FloatArray], FloatArray]


class Claim(NamedTuple):
    """A claimed mu, epsilon or delta, and its value computed here: a larger one refutes the claim."""

    what: str
    claimed: float
    found: float
    tight: bool = True  # whether the two are equal for correct code, up to rounding

    @property
    def refuted(self) -> bool:
        """Whether neighbors lose more than was claimed."""
        return not self.found <= self.claimed * (1.0 + ROUNDING)

    def __str__(self) -> str:
        return f"{self.what}: {self.found:.6g}, {self.claimed:.6g} claimed"


def recomputed(subject: Any, d: int, claim: Guarantee, notes: Sequence[Note]) -> list[Claim]:
    """Compute the claims of one subject a second time.

    ``claim`` is the audited guarantee: that of the subject, or of several runs of it. ``notes`` of a run have the
    standard deviations as they were used.
    """
    found = []
    for one in dict.fromkeys((claim, subject.guarantee)):
        if one.mu is not None and one.delta > 0.0:
            what = f"delta of mu = {one.mu:.4g} at epsilon = {one.epsilon:.4g}, by quadrature"
            found.append(Claim(what, one.delta, profile(one.mu, one.epsilon) + one.slack))
    if subject.guarantee.is_private:
        if warmup := [note for note in notes if note.kind == "bounds"]:
            found.append(_bounds(subject.guarantee, warmup))
        found += _parts(subject, d, [note for note in notes if note.exact is not None and note.kind != "bounds"])
    return found


def _integral(values: Callable[[FloatArray], FloatArray], edges: FloatArray) -> float:
    """Integrate over panels with these edges, by Gauss-Legendre quadrature."""
    half = 0.5 * np.diff(edges)[:, None]
    return float((half * values(edges[:-1, None] + half * (1.0 + _NODES)) * _WEIGHTS).sum())


@lru_cache(maxsize=512)
def profile(mu: float, epsilon: float) -> float:
    """Return delta of N(mu, 1) against N(0, 1) at epsilon."""
    # At u beyond the point where the loss is epsilon, the loss is epsilon + mu u. So delta is the integral of
    # phi(s + u) (1 - exp(-mu u)) over u > 0, with s = epsilon / mu - mu / 2.
    s = epsilon / mu - 0.5 * mu
    last = max(0.0, -s) + 40.0 / max(1.0, s)
    return _integral(
        lambda u: np.exp(-0.5 * (s + u) ** 2) * -np.expm1(-mu * u) / math.sqrt(2.0 * math.pi),
        np.linspace(0.0, last, 401),
    )


def hockey_stick(first: Density, second: Density, epsilon: float, breaks: Sequence[float]) -> float:
    """Integrate ``max(0, first - e**epsilon second)`` between the least and the largest break."""
    edges = np.unique(np.concatenate([np.linspace(min(breaks), max(breaks), 801), breaks]))
    middles = 0.5 * (edges[:-1] + edges[1:])

    def apart(x: Any) -> Any:
        return first(x) - math.exp(epsilon) * second(x)

    # Panels are cut where the integrand has a kink, so that the quadrature keeps its order.
    near = np.flatnonzero(np.diff(np.sign(apart(middles))))
    roots = [brentq(apart, middles[i], middles[i + 1]) for i in near if apart(middles[i]) * apart(middles[i + 1]) < 0.0]
    return _integral(lambda x: np.maximum(apart(x), 0.0), np.unique(np.append(edges, roots)))


# -- sensitivities by search ----------------------------------------------------------------------


def gram_move(
    d: int, adjacency: str, *, center: bool = False, rewards: bool = False, trace: bool = False, cells: float = 0.0
) -> float:
    """Return the largest move of a Gram matrix in Frobenius norm, with the sum of rows and of rewards beside it.

    Also of this number of full rows of ``cells``, whose products are 0. If ``trace``, the move is in trace norm, of the
    matrix only.
    """
    # Rotations leave both norms unchanged, so the first row is e1. A plane has all pairs of rows.
    angles = np.linspace(0.0, math.pi, 2 if d == 1 else 1025)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, : min(d, 2)]
    replace = adjacency == "replace"
    lengths = np.array([0.0, 0.5, 1.0])[:, None, None] if replace else np.zeros((1, 1, 1))
    other = (lengths * directions).reshape(-1, min(d, 2))
    first = np.broadcast_to(directions[:1], other.shape)
    moved = _outer(first) - _outer(other)
    if trace:
        return float(np.abs(np.linalg.eigvalsh(moved)).sum(axis=1).max())
    joint = moved
    if center:  # under zero-out the other row is absent
        absent = None if replace else np.ones(len(other), dtype=np.bool_)
        joint = _outer(with_constant(first)) - _outer(with_constant(other, absent))
    square = np.sum(joint**2, axis=(1, 2))
    if rewards:
        top = np.linalg.eigvalsh(moved)[:, -1]  # reward of the subspace that separates the rows best
        aside = 0.0
        if center and d > 1:
            # Opposite to a mean of length 1 across the subspace, a row has the reward -3; along it, 1.
            aside = np.linalg.norm(first - other, axis=1) * (2.0 if replace else 3.0)
        best = np.maximum(top, aside) / reward_scale(center=center, replace=replace)
        square = square + (REWARD_WEIGHT * np.minimum(best, 1.0)) ** 2
    return math.sqrt(float(square.max()) + PRESENCE * cells)


def _outer(rows: FloatArray) -> FloatArray:
    products: FloatArray = rows[:, :, None] * rows[:, None, :]
    return products


@lru_cache(maxsize=64)
def sketch_move(d: int, m: int, clip: float, weight: float, adjacency: str) -> float:
    """Return the largest move of a clipped ``a a^T Omega``, (d, m), with ``weight (a, c)`` beside it if centered."""
    # Directions in the span of two columns of Omega and one orthogonal to it. The first row is absent.
    tilt, turns = math.asin(clip), np.linspace(0.0, 2.0 * math.pi, 49)
    # Between the sketches of two rows on two sides that are furthest apart under replace.
    turns = np.append(turns, math.acos(min(1.0, (1.0 - clip**2) / (2.0 * clip**2))))
    tilts = np.append([tilt, math.pi - tilt], np.linspace(0.0, math.pi, 25))[:, None]
    points = np.stack(np.broadcast_arrays(np.sin(tilts) * np.cos(turns), np.sin(tilts) * np.sin(turns), np.cos(tilts)))
    rows = points.reshape(3, -1).T[:, [True, m > 1, d > m]]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.vstack([0.0 * rows[:1], rows / np.where(lengths < 1e-9, np.inf, lengths), 0.7 * rows])
    parts = rows[:, : min(m, 2)]
    sketches = (rows[:, :, None] * parts[:, None, :]).reshape(len(rows), -1)
    factors = np.minimum(1.0, clip / np.maximum(np.linalg.norm(sketches, axis=1, keepdims=True), 1e-300))
    present = np.ones(len(rows), dtype=np.bool_)
    present[0] = False
    beside = weight * with_constant(rows, ~present) if weight else np.zeros((len(rows), 1))
    return _furthest(factors * np.hstack([sketches, beside]), adjacency)


@lru_cache(maxsize=64)
def entries_move(d: int, adjacency: str) -> float:
    """Return the largest move of the upper triangle of a Gram matrix in l1 norm that the search finds."""
    ones = np.ones(d) / math.sqrt(d)
    signs = np.where(np.arange(d) < (d + 1) // 2, 1.0, -1.0)
    some = np.random.default_rng(0).normal(size=(400, d))
    rows = np.vstack([ones, signs / math.sqrt(d), np.eye(d)[:2], some / np.linalg.norm(some, axis=1, keepdims=True)])
    # Rows of two values, one for each half of the entries, are the worst under replace.
    turns = np.linspace(0.0, math.pi, 181)[:, None]
    halves = (np.abs(signs + 1.0) / 2.0, np.abs(signs - 1.0) / 2.0)
    two = [half / max(float(np.linalg.norm(half)), 1e-300) for half in halves]
    rows = np.vstack([rows, np.cos(turns) * two[0] + np.sin(turns) * two[1]])
    upper = _outer(np.vstack([np.zeros(d), rows]))[:, *np.triu_indices(d)]
    return _furthest(upper, adjacency, "cityblock")


def _furthest(values: FloatArray, adjacency: str, norm: Literal["euclidean", "cityblock"] = "euclidean") -> float:
    """Return the largest distance of two values, or under zero-out of any value from the first, that of a zero row."""
    values = values.reshape(len(values), -1)
    return float(cdist(values, values if adjacency == "replace" else values[:1], norm).max())


def _bounds(guarantee: Guarantee, notes: Sequence[Note]) -> Claim:
    """Claim of the histogram of magnitudes, on rows that no other mechanism reads."""
    d, bounds = notes[0].exact.values.shape[0], PrivateBounds.of(guarantee, 1, None)
    rows = [np.zeros((1, d)), np.full((1, d), 0.3), np.geomspace(1e-9, 1.0, d)[None], np.full((1, d), -5.0)]
    # A coordinate without a vote has bin 255, which is not counted.
    counts = [(bounds.votes(row)[0] == np.arange(255)[:, None]).astype(np.float64) for row in rows]
    move = _furthest(np.array(counts), guarantee.adjacency)
    return Claim("mu of the histogram of private bounds, by search", bounds.mu, move / min(note.std for note in notes))


# -- sums over time -------------------------------------------------------------------------------


class _Units(NamedTuple):
    """Draws of a step in place of `randomness.Draws`: numbers with a single 1 in each row, at the place of the step."""

    size: int  # coordinates of sums of noise
    slots: list[int]  # of one entry: numbers that a step draws for each coordinate
    n: int = 0
    name: bytes = b""

    def draws(self, n: int, name: bytes) -> _Units:
        """Return the draws of step n, as `outlet.NoiseSource.draws`."""
        return self._replace(n=n, name=name)

    def normal(self, count: int) -> FloatArray:
        """Return the numbers of the step: coordinate i is 1 in number i of all that were drawn."""
        self.slots[0] = count // self.size
        return np.eye(self.slots[0], self.size, self.n * self.slots[0]).reshape(-1)


def dense(mechanism: MatrixFactorization) -> FloatArray:
    """Return B, a row for each of at most 64 sums, from the noise as it runs."""
    n = min(mechanism.horizon or _INPUTS, _INPUTS)
    if isinstance(mechanism, ExactTree):  # its noise is integers, which have no matrix
        return mechanism.reconstruction(n)

    def rows(size: int, steps: int) -> FloatArray:
        units: Any = _Units(size, slots)
        noise, sums = mechanism.start(size, units), list[FloatArray]()
        # The draws of a step are unit vectors, so that the sums after it are a row of B.
        for step in range(steps):
            noise = noise.advance(units.draws(step, step.to_bytes(16, "little")))
            sums.append(noise.noise)
        return np.array(sums)

    slots = [1]
    rows(1, 1)  # learns how many numbers a step draws
    return rows(n * slots[0], n)


def products(mechanism: MatrixFactorization) -> FloatArray:
    """Return ``C^T C`` for ``B C = A``: squared losses of rows, and their products. Infinite where noise is missing."""
    # Denisov et al. 2022: releases A x + B z have the adaptive privacy of one Gaussian release of C x with z.
    b = dense(mechanism)
    try:
        root = np.linalg.cholesky(b @ b.T)
    except np.linalg.LinAlgError:
        return np.full((len(b), len(b)), math.inf)
    c = np.linalg.solve(root, mechanism.workload(len(b)))
    return np.asarray(c.T @ c, dtype=np.float64)


def of_sums(sums: str, mechanism: MatrixFactorization, mu: float, move: float, tight: bool = False) -> Claim:
    """Claim of running sums, of which a row moves one input by at most ``move``."""
    squares = np.diagonal(products(mechanism))
    worst = int(squares.argmax())
    what = f"mu of {sums} by dense matrices, row {worst + 1}"
    return Claim(what, mu, move * math.sqrt(float(squares[worst])), tight)


# -- subjects -------------------------------------------------------------------------------------


def _parts(subject: Any, d: int, notes: Sequence[Note]) -> Iterator[Claim]:
    """Yield the claims on the noise of a subject."""
    adjacency, mu = subject.guarantee.adjacency, subject.guarantee.mu or 0.0
    gram = gram_move(d, adjacency)
    # Two persons may each spend a budget that includes full rows of cells; two rows have one such row between them.
    both = getattr(subject, "unit", None) is not None and adjacency == "replace"
    cells = float(getattr(subject, "counts_cells", False)) * (2.0 if both else 1.0)
    # Standard deviations by kind, for each block of rows: a kind that recurs begins another block.
    phases: list[dict[str, float]] = [{}]
    for note in notes:
        if note.kind in phases[-1]:
            phases.append({})
        phases[-1][note.kind] = note.std
    match subject:
        case Tumbling():
            yield from _parts(subject.mechanism, d, notes)
        case PrivateFPL():
            move = gram_move(d, adjacency, center=subject.center, rewards=subject.publish_regret, cells=cells)
            if subject.unit is not None:
                move *= subject.unit.budget
            # The bound on the move of centered rewards is not attained.
            tight = subject.horizon is not None and d > 1 and not (subject.center and subject.publish_regret)
            yield of_sums("running sums", subject.mechanism, mu, move, tight)
        case DoublingFPL():
            yield of_sums("running sums of an epoch", subject.first_epoch(d).mechanism, mu, gram)
        case SlidingWindowPCA():
            move = gram_move(d, adjacency, center=subject.center, cells=cells)
            yield of_sums("windows", subject.mechanism, mu, move)
        case PrivateOja():
            k, clip = subject.n_components, subject.resolved(d).clip or 1.0
            step = sketch_move(d, k, clip, 0.0, adjacency) / subject.noise_std(d)
            yield Claim("mu of a step, by search", subject.budget.mu, step, d > k)
        case PrivateSketch():
            # Rounding in single precision is a part of the claim.
            yield of_sums("running sketches", subject.mechanism(d), mu, sketch_move(d, *subject.shape(d), adjacency))
        case DPPCA():
            # Segments share no rows (parallel composition): each may spend the whole budget.
            plan, delta = subject.plan(d), subject.delta
            yield from _votes(plan.votes, subject.epsilon, delta)
            inside = gram_move(subject.n_components, adjacency) / plan.inside_std
            yield Claim("delta of the scale, by quadrature", delta, profile(inside, subject.epsilon), tight=False)
            # ||(I - W W^T) a|| ||a^T W|| is sin x cos x, at most 1/2, for a unit row at angle x.
            for radius in (0.1, 0.25, 0.5):
                across = (2.0 if adjacency == "replace" else 1.0) * radius / plan.across(radius).std
                what = f"delta of a mean clipped to {radius:g}, by quadrature"
                yield Claim(what, delta, profile(across, subject.epsilon), tight=False)
        case GaussianCovariance():
            move = gram_move(d, adjacency, center=subject.center, cells=cells)
            std = min((note.std for note in notes if note.kind == "gram"), default=subject.sigma)
            yield Claim("mu of the Gram matrix, by search", mu, move / std, d > 1)
        case AdaptiveCovariance() | AdaptiveLaplaceCovariance():
            counts = np.array([norm_counts(np.array([[size, 0.0]])) for size in (0.0, 1.0, 0.5, 1e-3)])
            lost = float(lost_energy(np.array([[1.0, 0.0]]), 1e-6)[0])
            # Sum and count: an absent row, and two opposite ones.
            mean = _furthest(with_constant(np.array([[0.0], [1.0], [-1.0]]), np.arange(3) == 0), adjacency)
            if isinstance(subject, AdaptiveCovariance):
                moves = {"norms": _furthest(counts, adjacency), "lost": lost, "gram": gram, "mean": mean}
                unit, claimed, total = "mu", mu, math.hypot
            else:
                # A Laplace variable of scale b has the standard deviation b sqrt(2). The noise of the Gram matrix is
                # a difference of two Wishart matrices of d + 1 degrees.
                root, trace = math.sqrt(2.0), gram_move(d, adjacency, trace=True) * math.sqrt(d + 1.0)
                moves = {"norms": root * _furthest(counts, adjacency, "cityblock"), "lost": root * lost, "gram": trace}
                # A vector of d + 1 numbers whose length is Gamma(d + 1).
                moves["mean"] = mean * math.sqrt(d + 2.0)
                unit, claimed, total = "epsilon", subject.epsilon, lambda *spent: sum(spent)
            for phase in phases:
                spent = total(*(moves.get(kind, moves["gram"]) / std for kind, std in phase.items()))
                yield Claim(f"{unit} of {', '.join(phase)} together", claimed, spent)
        case SubspacePerturbation():
            gap = 2.0 if adjacency == "replace" else 1.0  # Weyl's inequality, attained by e1 against e2
            for phase in phases:
                if "gram" in phase:
                    spent = math.hypot(gap / phase["gap"], gram / phase["gram"])
                    yield Claim("mu of gap and Gram matrix together", mu, spent)
        case LaplaceCovariance():
            found = entries_move(d, adjacency) / subject.scale(d)
            yield Claim("epsilon of the entries, by search", subject.epsilon, found, adjacency == "zero-out")
        case MatrixLaplaceCovariance():
            found = gram_move(d, adjacency, trace=True) / (2.0 * subject.scale(d))
            yield Claim("epsilon of the matrix, by search", subject.epsilon, found)
        case WishartCovariance():
            # Delta of a chi-square against its shift, the larger of both directions.
            chi, moved = stats.chi2(subject.degrees(d) - d + 1), 1.0 / subject.scale(d)
            breaks: tuple[float, ...] = (0.0, moved, float(chi.isf(1e-14)) + moved)
            both: tuple[Density, Density] = (chi.pdf, lambda x: chi.pdf(x - moved))
            delta = max(hockey_stick(*pair, subject.epsilon, breaks) for pair in (both, both[::-1]))
            yield Claim("delta of the noise, by quadrature", subject.delta, delta, adjacency == "zero-out")
        case ExactSubspace():
            # A row changes two votes by 1. At half the epsilon, the loss of one of them, both densities have one ratio
            # on a whole interval, where rounding would decide: the factor moves it off.
            epsilon, bound = subject.noise.epsilon, subject.noise.bound

            def density(x: FloatArray) -> FloatArray:
                inside = np.where(np.abs(x) <= bound, np.exp(-np.abs(x) * epsilon), 0.0)
                return inside * epsilon / (-2.0 * math.expm1(-bound * epsilon))

            breaks = (-bound, 1.0 - bound, 0.0, 1.0, bound, bound + 1.0)
            delta = hockey_stick(density, lambda x: density(x - 1.0), 0.5 * subject.epsilon * (1.0 + 1e-12), breaks)
            yield Claim("delta of two votes, by quadrature", subject.delta, 2.0 * delta)
        case ApproximateSubspace():
            widths = WIDTHS if subject.widths is None else len(subject.widths)
            yield from _votes(subject.histogram, subject.epsilon / widths, subject.delta / widths)
        case StabilityHistogram():
            yield from _votes(subject, subject.epsilon, subject.delta)


def _votes(histogram: StabilityHistogram, epsilon: float, delta: float) -> Iterator[Claim]:
    """Yield the claims of a stability histogram: a vote that moves between two bins, and a bin of one vote."""
    yield Claim("epsilon of a vote that moves", epsilon, 2.0 / histogram.scale)
    beyond = (histogram.threshold - 1.0) / histogram.scale  # in units of the noise's scale
    shown = _integral(lambda x: 0.5 * np.exp(-np.abs(x)), np.linspace(beyond, beyond + 60.0, 401))
    yield Claim("delta of a lone vote, by quadrature", delta, shown if beyond >= 0.0 else 1.0)
