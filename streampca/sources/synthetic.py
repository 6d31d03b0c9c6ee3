"""Synthetic streams with a known subspace, of any length, in flat memory.

A row depends only on the seed, the shape and its position and, unless a class says otherwise, not on later rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from streampca.errors import BadParameterError, UsageError
from streampca.linalg.counts import check_components, check_count
from streampca.linalg.types import FloatArray, IntArray
from streampca.rows.protocol import RowSource

_TILE_ENTRIES = 2**22
_TILE_ROWS = 4096
#: Ratio of successive variances of the components, so that each component is identifiable.
_DECAY = 0.8


@dataclass(eq=False)
class Synthetic(RowSource):
    """Base class of the synthetic streams, with the parameters that all of them have.

    Parameters
    ----------
    n_rows, n_features, n_components : shape of the stream and of its subspace.
    seed : non-negative integer; equal seeds give equal rows.
    """

    n_rows: int = 10_000
    n_features: int = 20
    n_components: int = 3
    seed: int = 0

    bounds = None
    _basis: FloatArray = field(init=False, repr=False)  # of the true subspace, if it is constant

    def __post_init__(self) -> None:
        check_count("n_rows", self.n_rows)
        check_count("n_features", self.n_features)
        check_components(self.n_components, self.n_features)
        seed = self.seed
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise BadParameterError("seed", seed, "a non-negative integer")
        self.features = tuple(f"x{i}" for i in range(self.n_features))
        self._tile_rows = min(_TILE_ROWS, max(64, _TILE_ENTRIES // self.n_features))

    def blocks(self) -> Iterator[FloatArray]:
        for tile in range(-(-self.n_rows // self._tile_rows)):
            first = tile * self._tile_rows
            # Always a whole tile, so that a longer stream begins with the same bits.
            yield self._tile(first + np.arange(self._tile_rows), self._random("rows", tile))[: self.n_rows - first]

    def truth_at(self, t: int) -> FloatArray:
        """Return the orthonormal basis (n_features, n_components) of the true subspace at row t, from 1."""
        return self._basis.copy()

    @abstractmethod
    def _tile(self, positions: IntArray, random: np.random.Generator) -> FloatArray:
        """Return the rows at these positions, counted from 0."""

    def _random(self, purpose: str, index: int = 0) -> np.random.Generator:
        # Independent generators by purpose and tile, so that any tile can be drawn without those before it.
        words = [int(self.seed), int.from_bytes(f"{type(self).__name__} {purpose}".encode()), index]
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))

    def _directions(self, count: int) -> FloatArray:
        """Return random orthonormal directions, (n_features, count)."""
        if count > self.n_features:
            raise UsageError(
                f"n_components={self.n_components}: {count} directions exceed n_features={self.n_features}"
            )
        from streampca.linalg.eigen import orthonormal  # loads slowly; sources of real rows do not need it

        return orthonormal(self._random("directions").standard_normal((self.n_features, count)))


@dataclass(eq=False)
class Spiked(Synthetic):
    """Gaussian rows around a fixed subspace.

    Parameters
    ----------
    signal : share of the variance inside the subspace.
    norm : root mean square of the norms. A few rows are longer than 1; ``Stream`` scales them.
    """

    _: KW_ONLY
    signal: float = 0.9
    norm: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.signal <= 1.0:
            raise BadParameterError("signal", self.signal, "a number between 0 and 1")
        if not 0.0 < self.norm < np.inf:
            raise BadParameterError("norm", self.norm, "a positive finite number")
        self._basis = self._directions(self.n_components)
        weights = _DECAY ** np.arange(self.n_components)
        self._scales = self.norm * np.sqrt(self.signal * weights / weights.sum())
        self._noise = self.norm * float(np.sqrt((1.0 - self.signal) / self.n_features))

    def _tile(self, positions: IntArray, random: np.random.Generator) -> FloatArray:
        scores = random.standard_normal((positions.size, self.n_components)) * self._scales
        rows = random.standard_normal((positions.size, self.n_features))
        rows *= self._noise
        rows += self._mean(scores, positions)
        return rows

    def _mean(self, scores: FloatArray, positions: IntArray) -> FloatArray:
        return scores @ self._basis.T


@dataclass(eq=False)
class Drift(Spiked):
    """Gaussian rows around a subspace that turns steadily.

    Parameters
    ----------
    n_features : at least twice n_components.
    quarter_turn : rows after which the subspace is orthogonal to the initial one; n_rows by default.
    signal, norm : see `Spiked`.
    """

    _: KW_ONLY
    quarter_turn: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("quarter_turn", self.quarter_turn, optional=True)
        self.quarter_turn = self.quarter_turn or self.n_rows
        both = self._directions(2 * self.n_components)
        self._basis, self._other = both[:, : self.n_components], both[:, self.n_components :]

    def truth_at(self, t: int) -> FloatArray:
        """Return the basis of the subspace around which row t (counted from 1) is drawn; any t >= 1."""
        cosine, sine = self._turned(np.array([t - 1]))
        turned: FloatArray = self._basis * cosine[0] + self._other * sine[0]
        return turned

    def _turned(self, positions: IntArray) -> tuple[FloatArray, FloatArray]:
        angle = positions * (0.5 * np.pi / (self.quarter_turn or self.n_rows))
        return np.asarray(np.cos(angle)), np.asarray(np.sin(angle))

    def _mean(self, scores: FloatArray, positions: IntArray) -> FloatArray:
        cosine, sine = self._turned(positions)
        return (scores * cosine[:, None]) @ self._basis.T + (scores * sine[:, None]) @ self._other.T


@dataclass(eq=False)
class Adversarial(Synthetic):
    """Unit rows orthogonal to the leader: the worst case of follow-the-leader.

    The rows take k + 1 orthogonal directions in turn, after k shorter ones that fix the order. Follow-the-leader always
    omits the next direction and earns nothing from then on, while the best subspace in hindsight earns k/(k + 1) a
    row. Needs n_features > n_components.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._axes = self._directions(self.n_components + 1)
        # Direction j starts with j/(k+1), so the totals never tie and the least is always next in turn.
        self._head = np.sqrt(np.arange(1, self.n_components + 1) / (self.n_components + 1.0))

    def truth_at(self, t: int) -> FloatArray:
        """Return the basis of the best subspace in hindsight for the first t rows."""
        k = self.n_components
        totals = np.zeros(k + 1)
        totals[1 : 1 + min(t, k)] = self._head[:t] ** 2
        turns = max(t - k, 0)
        totals += turns // (k + 1) + (np.arange(k + 1) < turns % (k + 1))
        return self._axes[:, np.sort(np.argsort(totals, kind="stable")[1:])].copy()

    def _tile(self, positions: IntArray, random: np.random.Generator) -> FloatArray:
        k = self.n_components
        rows: FloatArray = self._axes.T[(positions - k) % (k + 1)]
        starting = positions < k
        rows[starting] = (self._axes[:, 1:] * self._head).T[positions[starting]]
        return rows


spiked, drift, adversarial = Spiked, Drift, Adversarial
