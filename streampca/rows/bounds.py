"""Bounds of columns: public ones of the command line, and private ones from the first rows of a stream."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameterError, UsageError, listed, reason, short
from streampca.linalg.counts import check_count
from streampca.linalg.types import FloatArray
from streampca.privacy.gaussian import mu_of
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Outlet

Ranges = tuple[float, float] | dict[str, tuple[float, float]]
_FORMS = 'expected lo:hi, name=lo:hi,..., or a JSON file {"name": [lo, hi], ...}'


def read_bounds(text: str) -> Ranges:
    """Parse bounds of the command line: ``lo:hi``, ``name=lo:hi,...`` or a JSON file."""
    if text.endswith(".json"):
        try:
            data = json.loads(Path(text).read_text(encoding="utf-8"))
            empty = [name for name, pair in data.items() if pair == [None, None]]
            ranges = {} if empty else {str(name): (float(low), float(high)) for name, (low, high) in data.items()}
        except (AttributeError, TypeError, ValueError, RecursionError) as problem:
            raise UsageError(f"--bounds {text}: {reason(problem)}; {_FORMS}") from problem
        if empty:
            raise UsageError(f"--bounds {text}: fill in the ranges of {listed(empty)}; {_FORMS}")
        return ranges
    ranges, named = {}, "=" in text
    for part in text.split(",") if named else [text]:
        name, _, value = part.partition("=") if named else ("", "", text)
        lower, _, upper = value.partition(":")
        try:
            ranges[name.strip()] = float(lower), float(upper)
        except ValueError:
            raise UsageError(f"--bounds {text}: {short(value)} is not a range; {_FORMS}") from None
    return ranges if named else ranges[""]


# -- private bounds -----------------------------------------------------------------

Bins = npt.NDArray[np.uint8]
#: Bins of a column, from the most negative magnitude over zero to the largest: 2 * LEVELS + 1. Level l > 0 holds
#: magnitudes in [2**(l - SHIFT - 1), 2**(l - SHIFT)); smaller ones count as zero, larger ones as the last level.
LEVELS, SHIFT = 120, 50
BINS = 2 * LEVELS + 1
NO_VOTE = 255
#: Probability that any empty bin of any column is taken for an occupied one.
_FALSE = 0.01
#: Standard deviations above which a bin next to the occupied ones, or up to `_TAIL` of them together, count as
#: occupied.
_BESIDE, _TOGETHER, _TAIL = 2.0, 3.0, 6
#: If occupied bins hold less than the first share of the rows, bins that are occupied in all columns together count
#: from the second number of standard deviations on.
_COVERED, _SHARED = 0.9, 3.0
#: Rows of the warm-up over the standard deviation of a count: a bin with 7 to 9 % of a column is detected.
_RATIO = 60.0


@dataclass(frozen=True, kw_only=True)
class PrivateBounds:
    """Bounds of columns from a private histogram of the magnitudes in the first rows of a stream.

    The rows of this warm-up spend their whole budget on the histogram, and are absent from everything else.

    Parameters
    ----------
    mu : Gaussian-DP parameter of the histogram.
    adjacency : ``"zero-out"`` or ``"replace"``.
    warmup : number of rows. If None, see `rows`.
    horizon : rows of the stream, if known.

    Notes
    -----
    *Theorem.* The histogram and all releases of the stream together have the guarantee of the algorithm.

    *Proof.* In each of d columns a row votes for one bin, by the sign and the binary exponent of its value; a row of
    zeros only, and a bad row, does not vote. Under zero-out a row moves at most one count by 1 in each column: sqrt(d)
    in Euclidean norm. Under replace it moves at most two: sqrt(2 d). Noise of standard deviation ``std`` = that over mu
    makes the histogram mu-GDP, which is within the algorithm's guarantee. A row of the warm-up has no other effect: the
    algorithm absorbs an absent row in its place, and bounds are a function of the released histogram. A later row does
    not vote, and given the bounds it is admitted independently, so that the algorithm's guarantee holds for it. The
    rows are disjoint: one neighbor differs in one of them, and nothing is added up (parallel composition).

    *People.* With a `Person` as the unit, the first row of hers that votes in the warm-up is her only vote, and none of
    her later rows counts. Whether she votes depends on her own rows only, so that under zero-out they move one count in
    each column, or the releases after the warm-up, but not both: people are disjoint, as rows are above. Under replace
    her rows may vote in one stream and count later in the other, which would add up.
    """

    mu: float
    adjacency: str
    warmup: int | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        check_count("warmup", self.warmup, optional=True)
        if self.horizon is not None and (self.warmup or 1) >= self.horizon:
            raise BadParameterError("warmup", self.warmup or 1, f"fewer rows than horizon={self.horizon}")

    @classmethod
    def of(cls, guarantee: Guarantee, warmup: int | None, horizon: int | None) -> PrivateBounds:
        """Return the private bounds of a stream with this guarantee.

        Raises `UsageError` if the guarantee does not allow Gaussian noise, or refers to people who are replaced.
        """
        if guarantee.is_private and guarantee.unit != "one row" and guarantee.adjacency == "replace":
            raise UsageError(
                "bounds='private', unit=Person(...), adjacency='replace': not supported together. Use "
                "adjacency='zero-out', or pass bounds=(lower, upper)"
            )
        if guarantee.adjacency not in ("zero-out", "replace") or not guarantee.delta:
            raise BadParameterError("bounds", "private", f"a guarantee with delta > 0, not {guarantee}")
        mu = mu_of(guarantee.epsilon, guarantee.delta) if guarantee.mu is None else guarantee.mu
        return cls(mu=mu, adjacency=guarantee.adjacency, warmup=warmup, horizon=horizon)

    def std(self, n_features: int) -> float:
        """Return the standard deviation of the noise in a count."""
        # sigma = Delta / mu, where a row moves one count a column by 1, and two of them under replace.
        return math.sqrt(n_features * (2 if self.adjacency == "replace" else 1)) / self.mu

    def rows(self, n_features: int) -> int:
        """Return the rows of the warm-up: `warmup`, or 60 times `std`, at most a quarter of the horizon. Public."""
        if self.warmup is not None:
            return self.warmup
        chosen = math.ceil(_RATIO * self.std(n_features))
        return chosen if self.horizon is None else max(1, min(chosen, self.horizon // 4))

    def check(self, n_features: int, n_rows: int, where: str) -> None:
        """Raise `UsageError` if the warm-up leaves no row of the ``n_rows`` in ``where``."""
        if (used := self.rows(n_features)) >= n_rows:
            raise UsageError(
                f"bounds='private' would use {used} rows to find the ranges, but {where} has {n_rows}. Give public "
                "bounds. Nothing was spent"
            )

    def warnings(self, n_features: int, n_rows: int | None) -> list[str]:
        """Return a warning if there are too few rows for bounds as good as public ones. Public."""
        enough = 4 * math.ceil(_RATIO * self.std(n_features))
        if n_rows is None or n_rows >= enough:
            return []
        return [
            f"private bounds of {n_features} columns at this budget require about {enough} rows, and there are about "
            f"{n_rows}. Pass public bounds."
        ]

    def votes(self, rows: FloatArray) -> Bins:
        """Return the bins of rows, (n, d); `NO_VOTE` for a row of zeros, and for nan. Curator only."""
        gaps = np.isnan(rows)
        rows = np.where(gaps, 0.0, rows)
        # frexp: 2**(e - 1) <= |x| < 2**e.
        levels = np.clip(np.frexp(rows)[1] + SHIFT, 0, LEVELS)
        bins: Bins = (LEVELS + np.sign(rows) * levels).astype(np.uint8)
        # A bad row of a warm-up arrives as a row of zeros, and must not vote.
        bins[~rows.any(axis=1)] = NO_VOTE
        bins[gaps] = NO_VOTE
        return bins

    def found(self, bins: Bins, outlet: Outlet) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper bounds, (d,) each: the ends of the occupied bins among those of the warm-up, (n, d).

        Bins next to the occupied ones count if they hold more than noise. If many rows are missing, so do bins that are
        occupied in many columns. A column without occupied bins gets the bounds of all columns together, or (-1, 1).
        Post-processing of the noisy counts.
        """
        d = bins.shape[1]
        # One count of each of 256 possible votes a column, of which `NO_VOTE` is dropped.
        places = bins + 256 * np.arange(d)
        counts = np.bincount(places.reshape(-1), minlength=256 * d).reshape(d, 256)[:, :BINS]
        std = self.std(d)
        # Privacy: exact counts end here. All below is a function of the noisy ones.
        noisy = outlet.gaussian("bounds", counts.astype(np.float64), std, 2.0**-20)
        together = _occupied(noisy.sum(axis=0), std * math.sqrt(d), 1)
        pairs = []
        for column in noisy:
            occupied = _occupied(column, std, d)
            if column[occupied].sum() < _COVERED * len(bins):  # many rows are missing
                occupied |= together & (column > _SHARED * std)
            pairs.append(_range_of(occupied) or _range_of(together) or (-1.0, 1.0))
        lower, upper = np.array(pairs).T
        return lower, upper


def _occupied(noisy: FloatArray, std: float, columns: int) -> npt.NDArray[np.bool_]:
    """Return the mask of bins that hold rows beyond the noise."""
    from scipy.special import ndtri  # slow to load, and not needed by admission

    occupied: npt.NDArray[np.bool_] = noisy > -float(ndtri(_FALSE / (BINS * columns))) * std
    if occupied.any():
        for side in (slice(None), slice(None, None, -1)):  # tails up and down; the slices are views of `occupied`
            part, counts = occupied[side], noisy[side]
            last = int(np.flatnonzero(part)[-1])
            while (tail := counts[last + 1 : last + 1 + _TAIL]).size:
                # The least number of bins that hold rows together.
                sizes = np.arange(1, tail.size + 1)
                clear = np.cumsum(tail) > np.where(sizes == 1, _BESIDE, _TOGETHER) * std * np.sqrt(sizes)
                if not clear.any():
                    break
                last += int(sizes[clear][0])
                part[last] = True
    return occupied


def _range_of(occupied: npt.NDArray[np.bool_]) -> tuple[float, float] | None:
    """Return the ends of the occupied bins, extended to a close zero; None if there are none, or zeros only."""
    places = np.flatnonzero(occupied)
    if not places.size or (places == LEVELS).all():
        return None
    lower, upper = -_edge(LEVELS - int(places[0])), _edge(int(places[-1]) - LEVELS)
    if 0.0 < lower <= 0.25 * upper:  # small values are too rare in each bin to be detected; zero costs a third
        lower = 0.0
    if 0.25 * lower <= upper < 0.0:
        upper = 0.0
    return lower, upper


def _edge(level: int) -> float:
    """Return the end of the bin of a level that is farther from zero; negative levels have the other sign."""
    return 0.0 if level == 0 else 2.0 ** (level - SHIFT) if level > 0 else -(2.0 ** (-level - SHIFT - 1))
