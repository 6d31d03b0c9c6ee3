"""The attacker: a score that is learnt from runs of its own.

For Gaussian transcripts with a common covariance S and means apart by m, no
test beats the matched filter ``S^-1 m`` (Neyman and Pearson): for a matrix
mechanism it is ``<C e_j, B^-1 (output)>``, the whole sequence whitened by the
decoder. Here S and m are learnt from transcripts instead of taken from what the
mechanism says about itself, so one that lies about its noise is attacked as
well as an honest one; and noise that is reused shows as a direction of no
variance, which the filter finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from streampca.linalg.types import FloatArray

Transcript = Mapping[str, float]
_FLOOR = 1e-10


def as_table(transcripts: Sequence[Transcript], columns: Sequence[str]) -> FloatArray:
    """Transcripts as an (n, m) array; what a transcript lacks is 0."""
    return np.array([[float(one.get(name, 0.0)) for name in columns] for one in transcripts]).reshape(
        len(transcripts), len(columns)
    )


def columns_of(*groups: Sequence[Transcript]) -> list[str]:
    """All names that occur, in order."""
    return list(dict.fromkeys(name for group in groups for one in group for name in one))


def matched_filter(without: FloatArray, having: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """The best linear score for telling two samples of transcripts apart, (n, m) each.

    Coordinates are first scaled by their total spread; directions whose
    variance within both samples is below 1e-10 of it count as noiseless.
    """
    middle = 0.5 * (without.mean(axis=0) + having.mean(axis=0))
    spread = np.concatenate([without, having]).std(axis=0)
    alive = spread > 1e-12 * (1.0 + np.abs(middle))
    scale = np.where(alive, spread, 1.0)

    def standard(table: FloatArray) -> FloatArray:
        return np.where(alive, (table - middle) / scale, 0.0)

    a, b = standard(without), standard(having)
    within = 0.5 * (np.cov(a, rowvar=False) + np.cov(b, rowvar=False))
    values, vectors = np.linalg.eigh(np.atleast_2d(within))
    shift = vectors.T @ (b.mean(axis=0) - a.mean(axis=0))
    weights = vectors @ (shift / np.maximum(values, _FLOOR))
    return lambda table: standard(table) @ weights
