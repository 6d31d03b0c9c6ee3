"""The affine map that public bounds stand for, undone where scores and means go back to raw units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streampca.admission import Bounds
from streampca.linalg.eigen import fix_signs
from streampca.linalg.types import FloatArray


@dataclass(frozen=True)
class Scaling:
    """``u = (x - middle) * scale``: the units in which a stream sees its rows, short of clamping and clipping.

    Attributes
    ----------
    middle, scale : (d,) arrays. Public: made of bounds and row_norm alone.
    """

    middle: FloatArray
    scale: FloatArray

    @classmethod
    def of(cls, bounds: Bounds | None, row_norm: float, n_features: int, names: Sequence[str] | None) -> Scaling:
        """What `Admission` does to rows, for bounds that it has accepted."""
        if bounds is None:
            return cls(np.zeros(n_features), np.ones(n_features))
        low, high = zip(*(bounds[name] for name in names or ()), strict=True) if isinstance(bounds, Mapping) else bounds
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (n_features,)) for end in (low, high))
        scale: FloatArray = row_norm / math.sqrt(n_features) / (0.5 * high - 0.5 * low)
        return cls(0.5 * low + 0.5 * high, scale)

    def apply(self, rows: FloatArray) -> FloatArray:
        """Rows in the stream's units."""
        scaled: FloatArray = (rows - self.middle) * self.scale
        return scaled


def turned(basis: FloatArray, towards: FloatArray) -> FloatArray:
    """The basis of the same subspace that is closest to another one (orthogonal Procrustes). Post-processing."""
    left, _, right = np.linalg.svd(basis.T @ towards)
    closest: FloatArray = basis @ (left @ right)
    return closest


def same_signs(basis: FloatArray, towards: FloatArray | None) -> FloatArray:
    """The basis with each column's sign chosen to agree with another one's."""
    if towards is None or towards.shape != basis.shape:
        return fix_signs(basis)
    agreeing: FloatArray = basis * np.where(np.einsum("ij,ij->j", basis, towards) < 0.0, -1.0, 1.0)
    return agreeing
