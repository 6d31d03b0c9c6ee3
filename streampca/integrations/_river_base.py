"""What the river adapters share: features by name, one stream, scores of rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from river import base

from streampca.admission import Admission, Bounds, OnBadRow
from streampca.errors import BadParameter, BadRow, NoRelease
from streampca.integrations._features import Features, OnMissing, OnUnseen, check_policies, in_order
from streampca.integrations._ledger import account
from streampca.integrations._scaling import Scaling, turned
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.processors.base import Algorithm
from streampca.release import Release
from streampca.stream import Stream


class _Begun(NamedTuple):
    """A stream and the features that it was begun with. A row was learnt from once its ``t`` is positive."""

    stream: Stream
    features: Features


class RiverAdapter(base.MiniBatchTransformer):
    """An algorithm as a river transformer. Subclasses store their parameters and call `_settle_in`."""

    n_components: int
    row_norm: float
    bounds: Bounds | None
    features: Sequence[Hashable] | None
    on_unseen: OnUnseen
    on_missing: OnMissing
    on_bad_row: OnBadRow
    align: bool
    ledger: str | None
    data_set: str | None
    seed: int | None

    def _settle_in(self, algorithm: Algorithm, *, center: bool = False) -> None:
        """Check the parameters, and begin with no rows."""
        check_policies(self.on_unseen, self.on_missing)
        Admission(row_norm=self.row_norm, on_bad_row=self.on_bad_row)
        account(self.ledger, self.data_set)
        self._algorithm, self._center = algorithm, center
        self._begun: _Begun | None = None
        self._played: tuple[int, FloatArray] | None = None  # t of a release, and the basis used for it
        self._labels = [f"pc{j}" for j in range(self.n_components)]
        if self.features is not None:
            self._fixed(self.features)

    def _fixed(self, given: Sequence[Hashable]) -> Features:
        """The features, of which there is one order whatever order they come in, unless the user gave one."""
        names = tuple(self.features) if self.features is not None else in_order(given)
        if len(names) < self.n_components:
            raise BadParameter(
                f"n_components={self.n_components} exceeds the {len(names)} features {list(names)}; ask for fewer "
                "components, or give features="
            )
        bounds = self._bounds()
        admission = Admission(row_norm=self.row_norm, bounds=bounds, features=tuple(map(str, names)))
        if bounds is not None and not isinstance(bounds, Mapping) and self.features is None and np.ndim(bounds[0]):
            raise BadParameter("bounds of several numbers need features=, which says their order; or give them by name")
        scaling = Scaling.of(admission, len(names))
        return Features(names, scaling, on_unseen=self.on_unseen, on_missing=self.on_missing)

    def _bounds(self) -> Bounds | None:
        if isinstance(self.bounds, Mapping):
            return {str(name): pair for name, pair in self.bounds.items()}
        return self.bounds

    def _begin(self, given: Sequence[Hashable]) -> _Begun:
        """A stream for rows of these features, for the first row that turns out to be good."""
        features, begun = self._fixed(given), self._begun
        # A first row that was broken off may have been paid for: the next one goes into the same stream.
        if begun is None or begun.features.names != features.names:
            stream = Stream(
                self._algorithm,
                features=tuple(map(str, features.names)),
                row_norm=self.row_norm,
                bounds=self._bounds(),
                on_bad_row=self.on_bad_row,
                center=self._center,
                regret=None,
                seed=self.seed,
                ledger=account(self.ledger, self.data_set),
            )
            self._begun = begun = _Begun(stream, features)
        return begun

    def _learnt(self) -> _Begun | None:
        """The stream and its features, or None before the first row."""
        begun = self._begun
        return begun if begun is not None and begun.stream.t else None

    # -- river's interface ----------------------------------------------------------

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Feed one row: a mapping from feature to number, or to text that is one.

        Raises
        ------
        BadRow
            If the row is bad and that is to be an error. Nothing has changed.
        HorizonReached, BudgetExhausted
            If no more rows may be taken. Nothing has changed.
        """
        begun = self._learnt()
        if begun is None:
            if not x and self.features is None:
                return  # a row of no features tells nothing, not even which features there are
            begun = self._begin(list(x))
        begun.stream.push(begun.features.row(x, begun.stream))

    def learn_many(self, X: pd.DataFrame) -> None:
        """Feed a table of rows: the same releases as one by one, bit for bit."""
        if not len(X):
            return
        begun = self._learnt() or self._begin(list(X.columns))
        begun.stream.push_many(begun.features.table(X, begun.stream))

    def transform_one(self, x: dict[Any, Any]) -> dict[Any, Any]:
        """Scores of a row on the components, ``{"pc0": ..., "pc1": ...}``. As sensitive as the row."""
        begun = self._learnt()
        if begun is None:
            return dict(zip(self._labels, self._unlearnt([x])[0].tolist(), strict=True))
        features = begun.features
        values = features.scaling.apply(_numbers(features.row(x, None)))
        return dict(zip(self._labels, (values @ self._basis(begun)).tolist(), strict=True))

    def transform_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Scores of a table of rows, with its index. As sensitive as the rows."""
        begun = self._learnt()
        if begun is None:
            scores = self._unlearnt(X.to_dict("records"))
        else:
            scores = begun.features.scaling.apply(begun.features.table(X, None)) @ self._basis(begun)
        return pd.DataFrame(scores, index=X.index, columns=self._labels)

    def _unlearnt(self, rows: Sequence[Mapping[Any, Any]]) -> FloatArray:
        """Scores before any row was learnt from: on the first coordinate axes."""
        scores = np.zeros((len(rows), self.n_components))
        for i, x in enumerate(rows):
            if len(x) >= self.n_components or self.features is not None:
                features = self._fixed(list(x))
                scores[i] = features.scaling.apply(_numbers(features.row(x, None)))[: self.n_components]
        return scores

    def _basis(self, begun: _Begun) -> FloatArray:
        """What rows are projected on: the latest release's subspace, or the first axes before it."""
        release, played = begun.stream.release, self._played
        if release is None:
            return np.eye(len(begun.features.names), self.n_components)
        if played is None or played[0] != release.t:
            basis = release.subspace.basis
            played = release.t, turned(basis, played[1]) if self.align and played is not None else basis
            self._played = played
        return played[1]

    # -- what is publishable --------------------------------------------------------

    @property
    def t(self) -> int:
        """Rows learnt from."""
        return 0 if self._begun is None else self._begun.stream.t

    @property
    def guarantee(self) -> Guarantee:
        """What is promised for all releases together. Known before any row."""
        promised = self._algorithm.guarantee
        return promised if self.seed is None else promised.seeded()

    @property
    def release(self) -> Release | None:
        """The latest release, or None before the first. Publishable."""
        return None if self._begun is None else self._begun.stream.release

    @property
    def components(self) -> pd.DataFrame:
        """The components of the latest release by descending eigenvalue, a row each. Publishable.

        Raises
        ------
        NoRelease
            Before the first release.
        """
        begun, release = self._begun, self.release
        if begun is None or release is None:
            raise NoRelease("nothing has been released yet; learn from more rows, or lower release_every")
        return pd.DataFrame(release.subspace.basis.T, index=self._labels, columns=list(begun.features.names))


def _numbers(values: list[Any]) -> FloatArray:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadRow(f"the row {values} is not all numbers; drop or encode text first") from None
