"""Mappings whose features come, go and change places, as rows of fixed features."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from streampca.errors import BadParameter, BadRow
from streampca.integrations._scaling import Scaling
from streampca.linalg.types import FloatArray
from streampca.stream import Stream

OnUnseen = Literal["ignore", "raise"]
OnMissing = Literal["fill", "raise"]


class Features:
    """The features of a stream of mappings, settled once.

    Parameters
    ----------
    names : keys of the mappings, in the order of a row's entries.
    scaling : which says what a feature that is missing counts as: the value that contributes nothing.
    on_unseen : what to do with a feature that is not among them.
    on_missing : what to do where one of them is absent.
    """

    def __init__(
        self, names: Iterable[Hashable], scaling: Scaling, *, on_unseen: OnUnseen, on_missing: OnMissing
    ) -> None:
        self.names = tuple(names)
        self.scaling = scaling
        self._known = frozenset(self.names)
        self._on_unseen, self._on_missing = on_unseen, on_missing
        self._fill: list[float] = scaling.middle.tolist()

    def row(self, x: Mapping[Any, Any], stream: Stream | None) -> list[Any]:
        """The values of one mapping, in order. The stream is asked for the row's number, for messages.

        Raises
        ------
        BadRow
            If a feature is unseen or missing and that is to be an error.
        """
        if len(x) == len(self.names):
            try:
                return [x[name] for name in self.names]
            except KeyError:
                pass
        self._check(x, stream)
        return [x.get(name, fill) for name, fill in zip(self.names, self._fill, strict=True)]

    def table(self, X: pd.DataFrame, stream: Stream | None) -> FloatArray:
        """The columns of a table as an (n, d) array, in order.

        Raises
        ------
        BadRow
            If a column is unseen or missing and that is to be an error, or one is not numeric.
        """
        place: dict[Hashable, int] = {name: j for j, name in enumerate(X.columns.tolist())}
        if place.keys() != self._known:
            self._check(place, stream)
        try:
            if place.keys() == self._known:
                order = np.array([place[name] for name in self.names])
                return X.to_numpy(dtype=np.float64)[:, order]
            rows: FloatArray = np.empty((len(X), len(self.names)))
            for j, name in enumerate(self.names):
                rows[:, j] = X.iloc[:, place[name]].to_numpy(dtype=np.float64) if name in place else self._fill[j]
        except (TypeError, ValueError) as problem:
            raise BadRow(f"{_place(stream)}: a column is not numeric ({problem}); drop or encode it") from None
        return rows

    def _check(self, given: Iterable[Any], stream: Stream | None) -> None:
        if self._on_unseen == "raise":
            unseen = [name for name in given if name not in self._known]
            if unseen:
                raise BadRow(f"{_place(stream)}: unseen feature {unseen[0]!r}; pass on_unseen='ignore' to leave it out")
        if self._on_missing == "raise":
            there = set(given)
            missing = [name for name in self.names if name not in there]
            if missing:
                raise BadRow(
                    f"{_place(stream)}: feature {missing[0]!r} is missing; pass on_missing='fill' to go on without"
                )


def _place(stream: Stream | None) -> str:
    return "to transform" if stream is None else f"row {stream.t + 1}"


def in_order(names: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Names in an order that does not depend on the one they came in."""
    return tuple(sorted(names, key=lambda name: (str(name), type(name).__name__)))


def check_policies(on_unseen: object, on_missing: object) -> None:
    """Raise `BadParameter` unless both are known."""
    if on_unseen not in ("ignore", "raise"):
        raise BadParameter(f"on_unseen={on_unseen!r} must be 'ignore' or 'raise'")
    if on_missing not in ("fill", "raise"):
        raise BadParameter(f"on_missing={on_missing!r} must be 'fill' or 'raise'")
