"""Linear maps applied to rows before they are clipped, and the choice of the one with the least predicted loss.

All but `norm_counts` and `lost_energy` is a function of released numbers and of fixed numbers, hence post-processing.
The model has Gaussian directions with an estimated spectrum and norms of a released histogram (the longest row has the
longest norm). Clipping, noise and the subspace of the noisy sum are simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from streampca.linalg.eigen import top_eigh
from streampca.linalg.svec import svec_size, unsvec
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import Randomness

#: Bins of the histogram of norms: 1/8 octave each, downwards from 1. The last one holds all shorter rows.
BINS = 96
_PER_OCTAVE = 8
_SEED = 20221124
#: Rows of the model, and simulated releases of each kind for a map.
_ROWS, _RELEASES = 1000, 3
#: Standard deviations above which a count is significant.
_SIGNIFICANT = 2.5
#: Standard deviations of its noise above which hidden energy counts: false in about 1 % of the releases.
_ALARM = 2.33
#: Half spectral norms of noise above which energy in one direction is significant.
CLEAR = 2.6
#: Step of the lattice of counts and energies.
GRID = 2.0**-26
#: Loss for each unit of the share of energy that clipping removes in mapped coordinates.
_PENALTY = 0.01
#: Weight of the case that the longest rows, also those hidden from the histogram, have separate directions.
_CAUTION = 0.5


class Norms(NamedTuple):
    """The significant bins of a noisy histogram of row norms."""

    upper: FloatArray  # (m,) upper edges of the bins, descending
    counts: FloatArray  # (m,) positive counts
    octaves: float  # width of a bin

    @classmethod
    def read(cls, noisy: FloatArray, std: float, n_rows: float) -> Norms | None:
        """Return bins that hold 3/4 of the rows, from BINS counts with noise; None if they hold less than 0.4."""
        # Wider bins have more rows against noise that grows by the square root only.
        for width in (1, 2, 4, 8):
            counts = noisy.reshape(-1, width).sum(axis=1)
            real = counts > _SIGNIFICANT * std * math.sqrt(width)
            if counts[real].sum() >= 0.75 * n_rows:
                break
        if counts[real].sum() < 0.4 * n_rows:
            return None
        octaves = width / _PER_OCTAVE
        return cls(np.exp2(-octaves * np.flatnonzero(real)), counts[real], octaves)

    @property
    def median(self) -> float:
        """Upper edge of the bin of the median."""
        below = np.cumsum(self.counts[::-1])[::-1]  # rows in this bin and in those of shorter rows
        return float(self.upper[np.flatnonzero(below >= 0.5 * below[0])[-1]])

    def lost_energy(self, radius: float, std: float = 0.0) -> tuple[float, float]:
        """Return the energy that clipping to a radius removes, and its sd for noise ``std`` in counts of 1/8 octave."""
        # The squared norm that clipping removes from a row at the geometric middle of each bin.
        lost = np.maximum((self.upper * 2.0 ** (-0.5 * self.octaves)) ** 2 - radius**2, 0.0)
        spread = std * math.sqrt(self.octaves * _PER_OCTAVE) * float(np.linalg.norm(lost))
        return float(self.counts @ lost), spread

    def quantiles(self, count: int) -> FloatArray:
        """Return the norms of ``count`` rows, descending."""
        ends = np.concatenate(([0.0], np.cumsum(self.counts)))
        logs = np.concatenate((np.log2(self.upper), [math.log2(self.upper[-1]) - self.octaves]))
        places = (np.arange(count) + 0.5) * (ends[-1] / count)
        bins = np.searchsorted(ends, places, side="right") - 1
        inside = (places - ends[bins]) / self.counts[bins]
        return np.asarray(2.0 ** (logs[bins] - inside * self.octaves))


def norm_counts(rows: FloatArray) -> FloatArray:
    """Return the exact histogram of norms, (BINS,): a row adds 1 to one bin, a zero row to none. Curator only."""
    squares = np.vecdot(rows, rows)
    # A zero row votes for no bin, so that zeroing a row moves one count.
    squares = squares[squares > 0.0]
    bins = np.clip(np.floor(-0.5 * _PER_OCTAVE * np.log2(squares)), 0, BINS - 1).astype(np.int64)
    return np.bincount(bins, minlength=BINS).astype(np.float64)


def lost_energy(rows: FloatArray, radius: float) -> FloatArray:
    """Return the exact energy that clipping to a radius removes, (1,); at most 1 a row. Curator only."""
    # At most 1 a row, also where rounding leaves a square above 1: the noise is calibrated for that.
    lost = np.minimum(np.maximum(np.vecdot(rows, rows) - radius**2, 0.0), 1.0)
    return np.array([np.floor(lost / GRID).sum() * GRID])


class NormEstimate(NamedTuple):
    """Released estimate of the lengths of rows, before their Gram matrix."""

    norms: Norms | None  # None if too few rows are in significant bins
    radius: float  # for clipping; 1 if rows are not to be clipped
    hidden: float  # energy that may be in long rows that the histogram does not show
    details: dict[str, Any]  # of the release
    has_lost_energy: bool = False  # whether the lost energy was released, and its share of the budget spent

    @classmethod
    def of(
        cls, rows: FloatArray, release: Callable[[str, FloatArray], FloatArray], norms_std: float, lost_std: float,
        clipped_norm: float, noise_norm: float, n_rows: float,
    ) -> NormEstimate:  # fmt: skip
        """Release the histogram of norms and, where rows of the unit ball may be clipped, the lost energy.

        ``release`` adds noise to values of a kind, "norms" or "lost", of standard deviation ``norms_std`` or
        ``lost_std``. ``clipped_norm`` is the spectral norm of the noise in the Gram matrix of rows clipped and scaled
        to norm 1, and ``noise_norm`` that without clipping. ``n_rows`` is the number of rows, public or released.
        """
        norms = Norms.read(release("norms", norm_counts(rows)), norms_std, n_rows)
        details: dict[str, Any] = {"rows": len(rows), "lost_energy": 0.0}
        if norms is None:
            return cls(norms, 1.0, 0.0, details)
        # The radius from the median on with the least lost energy plus norm of the noise.
        edges = norms.upper[norms.upper >= norms.median]
        costs = [norms.lost_energy(edge)[0] + edge**2 * clipped_norm for edge in edges]
        radius = float(edges[int(np.argmin(costs))])
        if radius == 1.0:
            return cls(norms, radius, 0.0, details)
        lost = float(release("lost", lost_energy(rows, radius))[0])
        details |= {"lost_energy": lost, "lost_energy_std": lost_std, "lost_energy_radius": radius}
        # Long rows too few for the histogram may hold the subspace: if they show, nothing is clipped.
        # Public numbers only from here on: both terms were released.
        shown, shown_std = norms.lost_energy(radius, norms_std)
        hidden = lost - shown
        if hidden > max(_ALARM * math.hypot(lost_std, shown_std), noise_norm):
            radius = 1.0
        return cls(norms, radius, max(hidden + lost_std, 0.0), details, has_lost_energy=True)


def energy_outside(own: FloatArray, other: FloatArray, k: int) -> tuple[float, float]:
    """Return the most energy of a released ``other`` in a direction outside the top k of another matrix, ``own``.

    The second number is the energy of ``own`` in that direction, scaled up to that of ``other`` in the k directions.
    """
    basis = top_eigh(own, k)[1]
    off = np.eye(len(own)) - basis @ basis.T
    direction = top_eigh(off @ other @ off, 1)[1][:, 0]
    inside = basis.T @ other @ basis
    scale = max(1.0, float(np.trace(inside)) / max(float(np.vdot(basis, own @ basis)), 1e-300))
    expected = scale * max(float(direction @ own @ direction), 0.0)
    return float(direction @ other @ direction), expected


class Map(NamedTuple):
    """A map diag(sqrt(weights)) in the eigenbasis of stage one, before clipping to norm 1."""

    name: str
    weights: FloatArray  # (d,)
    radius: float | None  # the clipping radius where all weights are equal


class Choice(NamedTuple):
    """The map of stage two."""

    map: Map
    factor: float  # of the first stage's estimate before the two are combined; 0 drops it
    loss: float | None  # predicted share of the best subspace's variance that the release misses


class Model:
    """A model of the rows, from the release of stage one. All figures are over the number of rows.

    ``values``, (d,), are the eigenvalues of the estimate of rows clipped to ``radius``, descending, ``noise`` the
    standard deviations on the diagonal in the two stages for unit radius, ``hidden`` energy that the histogram lacks.
    """

    def __init__(
        self, values: FloatArray, n_components: int, radius: float, norms: Norms, noise: tuple[float, float],
        hidden: float,
    ) -> None:  # fmt: skip
        d, k = values.size, n_components
        self.values, self.k, self.radius, self.norms = values, k, radius, norms
        self.noise, self._hidden = noise, hidden
        self._std = radius**2 * noise[0]
        tau = self._std * math.sqrt(d / 2.0)
        tail = max(float(values[k:].mean()), 0.0)
        floor = max(0.25 * tail, tau / math.sqrt(2.0 * d))
        self.resolved = int((values[:k] - tail > 2.4 * tau).sum())  # first eigenvalues that exceed the noise

        # Eigenvalues without the spread that the noise gives them: GOE noise moves an eigenvalue x above the tail to
        # x + tau**2 / x, and gives equal ones the variance tau**2.
        above = values[:k] - tail
        root = np.sqrt(np.maximum(above**2 - 4.0 * tau**2, 0.0))
        head = tail + np.where(above > 2.0 * tau, 0.5 * (above + root), 0.5 * np.maximum(above, tau))
        rest = values[k:]
        shrinkage = math.sqrt(max(0.0, 1.0 - tau**2 / max(float(rest.var()), 1e-300)))
        shrunk = np.concatenate((head, tail + shrinkage * (rest - tail)))
        clipped = np.maximum(np.minimum.accumulate(shrunk), floor)

        # Rows with this spectrum show the share that clipping kept of each direction; dividing by it undoes clipping.
        self._model_rows(clipped)
        unclipped = clipped / np.maximum(self._first_kept, 0.1)
        self.spectrum = np.maximum(np.minimum.accumulate(unclipped), floor)  # eigenvalues per row before clipping
        self._model_rows(self.spectrum)

        # The posterior: possible covariances of the rows given stage one, (d, d) in its eigenbasis.
        gap = np.maximum(values - tail, 1e-300)
        sure = np.clip((self.spectrum - tail) / gap, 0.0, 1.0)
        spread = np.sqrt(0.5 * (sure[:, None] + sure - sure[:, None] * sure)) * self._std
        self._truths = []
        for goe in _goes("posterior", d):
            drawn, vectors = np.linalg.eigh(np.diag(self.spectrum) + spread * goe)
            drawn = np.maximum(drawn, 0.0)
            drawn *= min(1.0, float(self.spectrum.sum()) / max(float(drawn.sum()), 1e-300))
            self._truths.append((vectors * drawn) @ vectors.T)

    def _model_rows(self, spectrum: FloatArray) -> None:
        """Model rows of a spectrum, whose norms follow the histogram in the order of their lengths."""
        rows = _numbers("rows", _ROWS * spectrum.size).reshape(_ROWS, -1) * np.sqrt(spectrum)
        lengths = np.linalg.norm(rows, axis=1)
        wanted = np.empty(_ROWS)
        wanted[np.argsort(-lengths, kind="stable")] = self.norms.quantiles(_ROWS)
        self._rows = rows * (wanted / lengths)[:, None]
        self._first_kept = self.kept(np.full(spectrum.size, 1.0 / self.radius**2))

    def kept(self, weights: FloatArray) -> FloatArray:
        """Return the share of each direction's energy that remains after a map and clipping, (d,)."""
        squares = self._rows**2
        part = np.minimum(1.0, 1.0 / np.maximum(squares @ weights, 1e-300))
        return np.asarray((part @ squares) / squares.sum(axis=0))

    def _kept_if_long(self, weights: FloatArray, kept: FloatArray) -> FloatArray:
        """Return the least share if the longest rows may hold the first k directions; hidden rows have norm 1."""
        k, kept = self.k, kept.copy()
        squares = self.norms.quantiles(_ROWS) ** 2
        ends = np.searchsorted(np.cumsum(squares), np.cumsum(self.spectrum[:k]) * _ROWS)
        start = 0
        for j, end in enumerate(np.clip(ends, 1, _ROWS).tolist()):
            rows = squares[min(start, end - 1) : end]
            kept[j] = min(kept[j], np.minimum(rows, 1.0 / weights[j]).sum() / rows.sum())
            start = end
        share = self._hidden / (self._hidden + float(self.spectrum[-1]))
        # Hidden rows have norm 1 and may all point in the last direction.
        kept[-1] += share * (min(1.0, 1.0 / float(weights[-1])) - kept[-1])
        return kept

    def maps(self) -> Iterator[Map]:
        """Yield the maps to choose from, scalars first; only that of stage one, if no direction is resolved."""
        d, k, q, median = self.values.size, self.k, self.resolved, self.norms.median
        radii = (median, math.sqrt(2.0) * median, 2.0 * median, self.radius, 2.0 * self.radius, 1.0)
        # Without a resolved direction, the predictions rest on noise.
        for radius in sorted({min(radius, 1.0) for radius in radii} if q else {self.radius}):
            yield Map(f"radius {radius:.4g}", np.full(d, 1.0 / radius**2), radius)
        if q == 0:
            return
        xi = self.spectrum
        shapes: list[tuple[str, FloatArray]] = []
        if q == k:
            shapes += [("power 1/4", xi**-0.25), ("power 1/2", xi**-0.5)]
        for share in (0.5, 0.3, 0.15) if q == k else (0.3, 0.15, 0.08):
            shapes.append((f"two blocks {share}", _blocks(np.ones(d), xi, q, share)))
            if q == k:
                shapes.append((f"quarter blocks {share}", _blocks(xi**-0.5, xi, q, share)))
        for name, shape in shapes:
            for c in (0.7, 1.0, 1.5, 2.5):
                yield Map(f"{name}, {c}", shape / (c * float(shape @ xi)), None)

    def losses(self, one: Map) -> tuple[float, float, float]:
        """Return the predicted losses of a map, under the estimated spectrum and under the posterior; and the factor.

        The factor clips the first stage's estimate as the second's; 0 drops it. Each loss is a mixture with that if the
        longest rows lie in the first k directions and hidden ones in the last.
        """
        k, truth = self.k, np.diag(self.spectrum)
        kept = self.kept(one.weights)
        if one.radius is not None:
            factor = 1.0 if one.radius == self.radius else 0.0
        else:
            head = self.spectrum[:k]
            factor = float(head @ kept[:k]) / float(head @ self._first_kept[:k])
        plug_in = self._fresh_loss(one, truth, kept, self._first_kept, factor)
        posterior = self._loss(one, kept, factor, self._truths, [np.diag(self.values)] * _RELEASES)
        with_hidden = self.spectrum.copy()
        with_hidden[-1] += self._hidden
        first_kept = self._kept_if_long(np.full(kept.size, 1.0 / self.radius**2), self._first_kept)
        worst = self._fresh_loss(one, np.diag(with_hidden), self._kept_if_long(one.weights, kept), first_kept, factor)
        # A mixture: half the weight is on the case that the longest rows hold the subspace, which clipping would lose.
        plug_in += _CAUTION * (worst - plug_in)
        posterior += _CAUTION * (worst - posterior)
        energy = one.weights * self.spectrum
        penalty = _PENALTY * (1.0 - float(energy @ kept) / float(energy.sum()))
        return plug_in + penalty, posterior + penalty, factor

    def _fresh_loss(
        self, one: Map, truth: FloatArray, kept: FloatArray, first_kept: FloatArray, factor: float
    ) -> float:
        """Return the loss with new noise in both stages."""
        # Stage one has seen each direction shrunk by what clipping keeps of it, plus noise.
        roots = np.sqrt(first_kept)
        firsts = [roots[:, None] * truth * roots + self._std * goe for goe in _goes("first", len(truth))]
        return self._loss(one, kept, factor, [truth] * _RELEASES, firsts)

    def _loss(
        self, one: Map, kept: FloatArray, factor: float, truths: list[FloatArray], firsts: list[FloatArray]
    ) -> float:
        """Return the mean loss over pairs of a truth and an estimate of stage one, with new noise in stage two."""
        roots, std, loss = np.sqrt(kept), entry_std(one.weights, self.noise[1]), 0.0
        for goe, truth, first in zip(_goes("second", kept.size), truths, firsts, strict=True):
            seen = combined(roots[:, None] * truth * roots + std * goe, std, first, self._std, factor)
            basis = top_eigh(seen, self.k)[1]
            best = float(np.linalg.eigvalsh(truth)[-self.k :].sum())
            loss += (1.0 - float(np.vdot(basis, truth @ basis)) / best) / _RELEASES
        return loss

    def choose(self) -> Choice:
        """Return the map with the least loss; a scalar unless another is better by a tenth in both predictions."""
        tried = [(one, *self.losses(one)) for one in self.maps()]
        safe = min((entry for entry in tried if entry[0].radius is not None), key=lambda entry: entry[1] + entry[2])
        # A map that is not scalar may clip a direction away, so it must be better by a tenth in both predictions.
        best, best_ratio = safe, 0.9
        for entry in (entry for entry in tried if entry[0].radius is None):
            ratio = max(entry[1] / safe[1], entry[2] / safe[2])
            if ratio < best_ratio:
                best, best_ratio = entry, ratio
        return Choice(best[0], best[3], 0.5 * (best[1] + best[2]))


def entry_std(weights: FloatArray, std: float) -> FloatArray:
    """Return the standard deviations of the noise of a mapped estimate, (d, d), times sqrt(2) off the diagonal."""
    roots = 1.0 / np.sqrt(weights)
    return std * roots[:, None] * roots


def combined(
    second: FloatArray, second_std: FloatArray, first: FloatArray, first_std: float, factor: float
) -> FloatArray:
    """Average two estimates by inverse variance, entry by entry; the first is multiplied by ``factor``."""
    if factor == 0.0:
        return second
    weight = second_std**2 / (second_std**2 + (factor * first_std) ** 2)
    return (1.0 - weight) * second + weight * (factor * first)


def combined_std(second_std: FloatArray, first_std: float, factor: float) -> FloatArray:
    """Return the standard deviations of the noise in `combined`, in the form of `entry_std`."""
    if factor == 0.0:
        return second_std
    return np.asarray(second_std * (factor * first_std) / np.hypot(second_std, factor * first_std))


def _blocks(shape: FloatArray, spectrum: FloatArray, q: int, share: float) -> FloatArray:
    """Return a shape whose first q directions hold that share of the mapped energy."""
    energy = shape * spectrum
    return np.append(shape[:q] * (share / energy[:q].sum()), shape[q:] * ((1.0 - share) / energy[q:].sum()))


@lru_cache(maxsize=16)
def _numbers(name: str, size: int) -> FloatArray:
    """Return fixed standard normal numbers."""
    numbers = Randomness.from_seed(_SEED).stream("norm maps", name).normal(0, size)
    numbers.flags.writeable = False
    return numbers


@lru_cache(maxsize=16)
def _goes(name: str, d: int) -> tuple[FloatArray, ...]:
    """Return fixed matrices of standard GOE noise: variance 1 on the diagonal and 1/2 off it."""
    drawn = _numbers(name, _RELEASES * svec_size(d)).reshape(_RELEASES, -1)
    return tuple(unsvec(one, d) for one in drawn)
