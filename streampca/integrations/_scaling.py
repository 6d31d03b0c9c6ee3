"""The affine map that public bounds stand for, undone where scores and means go back to raw units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streampca.admission import Admission
from streampca.linalg.eigen import fix_signs
from streampca.linalg.types import FloatArray


@dataclass(frozen=True, eq=False)
class Scaling:
    """``u = (x - middle) * scale``: the units in which a stream sees its rows, short of clamping and clipping.

    Attributes
    ----------
    middle, scale : (d,) arrays. Public: made of bounds and row_norm alone.
    """

    middle: FloatArray
    scale: FloatArray

    @classmethod
    def of(cls, admission: Admission, n_features: int) -> Scaling:
        """What an admission of so many features does to rows."""
        middle, scale = admission.ranges()
        if middle is None or scale is None:
            return cls(np.zeros(n_features), np.ones(n_features))
        return cls(middle, scale)

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
