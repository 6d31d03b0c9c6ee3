"""Parts of the river and the scikit-learn estimators: the affine map of public bounds, and the ledger account."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath

import numpy as np

from streampca.admission import Admission
from streampca.errors import BadParameterError
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee


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
        return (rows - self.middle) * self.scale


class LedgerFile:
    """A data set's account in a ledger file: a path, so that it survives clones, pickles and worker processes.

    Parameters
    ----------
    path : a ledger file that exists; see `streampca.store.ledger.Ledger`.
    data_set : whose budget pays.
    """

    def __init__(self, path: str | PathLike[str], data_set: str) -> None:
        self.path, self.data_set = fspath(path), data_set

    def debit(self, guarantee: Guarantee, start: bytes) -> None:
        """Book one start of a stream; see `streampca.privacy.guarantee.Account`."""
        from streampca.store.ledger import Ledger  # for those only who keep one

        with Ledger.existing(self.path) as ledger:
            ledger.account(self.data_set).debit(guarantee, start)


def account(ledger: str | PathLike[str] | None, data_set: str | None) -> LedgerFile | None:
    """The account that two parameters of an estimator name, or None if neither is given."""
    if (ledger is None) != (data_set is None):
        raise BadParameterError(
            f"ledger={ledger!r}, data_set={data_set!r}: give the path of a ledger and the name of the data set, "
            "or neither"
        )
    return None if ledger is None or data_set is None else LedgerFile(ledger, data_set)
