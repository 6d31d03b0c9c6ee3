"""What the river adapters share: features by name, one stream, scores of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from river import base

from streampca.admission import Admission, Bounds, OnBadRow
from streampca.errors import BadParameter, BadRow, NoRelease
from streampca.integrations._features import Features, OnMissing, OnUnseen, check_policies, in_order
from streampca.integrations._scaling import Scaling, turned
from streampca.integrations._session import Session, account
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.processors.base import Processor
from streampca.release import Release


class RiverAdapter(base.MiniBatchTransformer):
    """A processor as a river transformer. Subclasses store their parameters and call `_settle_in`."""

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

    @abstractmethod
    def _processor(self) -> Processor:
        """A fresh processor with this adapter's parameters."""

    def _center(self) -> bool:
        return False

    def _settle_in(self) -> None:
        """Check the parameters, and begin with no rows."""
        check_policies(self.on_unseen, self.on_missing)
        Admission(row_norm=self.row_norm, on_bad_row=self.on_bad_row)
        account(self.ledger, self.data_set)
        promised = self._processor().guarantee
        self._promised = promised if self.seed is None else promised.seeded()
        self._session: Session | None = None
        self._features: Features | None = None
        self._played: FloatArray | None = None
        self._played_t = 0
        self._labels = [f"pc{j}" for j in range(self.n_components)]
        if self.features is not None:
            self._fixed(self.features)

    def _fixed(self, given: Sequence[Hashable]) -> Features:
        """The features, of which there is one order whatever order they come in, unless the user gave one."""
        names = tuple(given) if self.features is not None else in_order(given)
        if len(names) < self.n_components:
            raise BadParameter(
                f"n_components={self.n_components} exceeds the {len(names)} features {list(names)}; ask for fewer "
                "components, or give features="
            )
        bounds, texts = self._bounds(), tuple(map(str, names))
        gate = Admission(row_norm=self.row_norm, bounds=bounds, features=texts)
        if bounds is not None and not isinstance(bounds, Mapping) and self.features is None and np.ndim(bounds[0]):
            raise BadParameter("bounds of several numbers need features=, which says their order; or give them by name")
        scaling = Scaling.of(bounds, gate.row_norm, len(names), texts)
        return Features(names, scaling, on_unseen=self.on_unseen, on_missing=self.on_missing)

    def _bounds(self) -> Bounds | None:
        if isinstance(self.bounds, Mapping):
            return {str(name): pair for name, pair in self.bounds.items()}
        return self.bounds

    def _begun(self, given: Sequence[Hashable]) -> tuple[Session, Features]:
        """A stream for rows of these features; this model's own once a row was taken."""
        features = self._fixed(self.features if self.features is not None else given)
        session = Session(
            self._processor(),
            n_features=len(features.names),
            features=tuple(map(str, features.names)),
            row_norm=self.row_norm,
            bounds=self._bounds(),
            on_bad_row=self.on_bad_row,
            center=self._center(),
            seed=self.seed,
            ledger=account(self.ledger, self.data_set),
        )
        return session, features

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
        session, features = self._session, self._features
        if session is None or features is None:
            if not x and self.features is None:
                return  # a row of no features tells nothing, not even which features there are
            session, features = self._begun(list(x))
        session.stream.push(features.row(x, session.stream))
        self._session, self._features = session, features

    def learn_many(self, X: pd.DataFrame) -> None:
        """Feed a table of rows: the same releases as one by one, bit for bit."""
        if not len(X):
            return
        session, features = self._session, self._features
        if session is None or features is None:
            session, features = self._begun(list(X.columns))
        session.stream.push_many(features.table(X, session.stream))
        self._session, self._features = session, features

    def transform_one(self, x: dict[Any, Any]) -> dict[Any, Any]:
        """Scores of a row on the components, ``{"pc0": ..., "pc1": ...}``. As sensitive as the row."""
        features = self._features
        if features is None:
            return dict(zip(self._labels, self._unlearnt([x])[0].tolist(), strict=True))
        values = _numbers(features.row(x, None))
        return dict(zip(self._labels, (features.scaling.apply(values) @ self._basis()).tolist(), strict=True))

    def transform_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Scores of a table of rows, with its index. As sensitive as the rows."""
        features = self._features
        if features is None:
            scores = self._unlearnt(X.to_dict("records"))
        else:
            scores = features.scaling.apply(features.table(X, None)) @ self._basis()
        return pd.DataFrame(scores, index=X.index, columns=self._labels)

    def _unlearnt(self, rows: Sequence[Mapping[Any, Any]]) -> FloatArray:
        """Scores before any row was learnt from: on the first coordinate axes."""
        scores = np.zeros((len(rows), self.n_components))
        for i, x in enumerate(rows):
            if len(x) >= self.n_components or self.features is not None:
                features = self._fixed(self.features if self.features is not None else list(x))
                scores[i] = features.scaling.apply(_numbers(features.row(x, None)))[: self.n_components]
        return scores

    def _basis(self) -> FloatArray:
        """What rows are projected on: the latest release's subspace, or the first axes before it."""
        assert self._session is not None
        assert self._features is not None
        release = self._session.stream.release
        if release is None:
            return np.eye(len(self._features.names), self.n_components)
        if release.t != self._played_t or self._played is None:
            basis = release.subspace.basis
            self._played = turned(basis, self._played) if self.align and self._played is not None else basis
            self._played_t = release.t
        return self._played

    # -- what is publishable --------------------------------------------------------

    @property
    def t(self) -> int:
        """Rows learnt from."""
        return 0 if self._session is None else self._session.stream.t

    @property
    def guarantee(self) -> Guarantee:
        """What is promised for all releases together. Known before any row."""
        return self._promised

    @property
    def release(self) -> Release | None:
        """The latest release, or None before the first. Publishable."""
        return None if self._session is None else self._session.stream.release

    @property
    def components(self) -> pd.DataFrame:
        """The components of the latest release by descending eigenvalue, a row each. Publishable.

        Raises
        ------
        NoRelease
            Before the first release.
        """
        release = self.release
        if release is None:
            raise NoRelease("nothing has been released yet; learn from more rows, or lower release_every")
        assert self._features is not None
        return pd.DataFrame(release.subspace.basis.T, index=self._labels, columns=list(self._features.names))


def _numbers(values: list[Any]) -> FloatArray:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadRow(f"the row {values} is not all numbers; drop or encode text first") from None
