"""Privacy for users with several rows each."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streampca.errors import BadParameter, BadRow
from streampca.linalg.types import FloatArray
from streampca.processors.base import Processor
from streampca.rows import RowSource
from streampca.step import Step, Steps
from streampca.stream import Stream


class UserStream(Stream):
    """A stream whose guarantee is for all rows of a user together.

    Rows of a user past the processor's ``max_rows_per_user`` become zero
    rows: they take their place in the stream and change nothing.

    Parameters
    ----------
    processor : calibrated with ``max_rows_per_user=``, e.g. `PrivateFPL`.
    user : name of the column that says whose row it is, for rows that are
        mappings. It is not a feature.
    options : those of `Stream`, but for ``center`` and ``store``.

    Raises
    ------
    BadParameter
        If the processor is not calibrated for users, or an option is not available.

    Notes
    -----
    *Guarantee.* That of the processor, for neighbours that differ in all
    rows of one user: against zero rows (zero-out), or against other rows
    (replace). How many rows there are and whose they are is public to the
    extent that positions are; a row is capped by its number among its user's rows, which no
    row's content changes. Users are counted in memory. Curator only.
    """

    _knows_users = True

    def __init__(self, processor: Processor, *, user: str | None = None, **options: Any) -> None:
        cap = getattr(processor, "max_rows_per_user", None)
        if cap is None:
            raise BadParameter(
                "the processor is calibrated for one row a user; give it max_rows_per_user=, or use Stream"
            )
        for name in ("center", "store"):
            if options.get(name):
                raise BadParameter(f"{name}={options[name]!r} is not available for users; leave it out")
        self._user = user
        self._cap = int(cap)
        self._counts: dict[Hashable, int] = {}
        super().__init__(processor, **options)

    def push(self, row: Any, user: Hashable = None) -> Step:
        """Feed one row of a user; see `Stream.push`.

        Parameters
        ----------
        row : as for `Stream.push`; a mapping may hold the user's column.
        user : whose row it is, if the row does not say.
        """
        row, user = self._owned(row, user)
        seen = self._counts.get(user, 0)
        step = super().push(self._zero_row() if seen >= self._cap else row)
        self._counts[user] = seen + 1
        return step

    def push_many(self, rows: Any, users: Iterable[Hashable] | None = None) -> Steps:
        """Feed a block of rows; see `Stream.push_many`.

        Parameters
        ----------
        rows : (n, d) array, a table, or a sequence of rows.
        users : whose row each is, if rows do not say.
        """
        if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):
            rows, users = self._table(rows, users)
        elif users is None:
            pairs = [self._owned(row, None) for row in rows]
            rows, users = [row for row, _ in pairs], [user for _, user in pairs]
        whose, counts = list(users), dict(self._counts)
        if len(whose) != len(rows):
            raise BadParameter(f"{len(whose)} users given for {len(rows)} rows; name one for each row")
        over = []
        for i, user in enumerate(whose):
            self._check_user(user)
            counts[user] = counts.get(user, 0) + 1
            if counts[user] > self._cap:
                over.append(i)
        steps = super().push_many(self._capped(rows, over))
        self._counts = counts
        return steps

    def run(self, rows: Iterable[Any]) -> Iterator[Step]:
        """Feed mappings that hold the user's column, lazily; yield a `Step` a row."""
        if isinstance(rows, RowSource):
            raise BadParameter("sources hold features only; feed mappings, or push_many(rows, users=...)")
        for row in rows:
            yield self.push(row)

    def _owned(self, row: Any, user: Hashable) -> tuple[Any, Hashable]:
        if user is None and self._user is not None and isinstance(row, Mapping):
            if self._user not in row:
                raise BadRow(f"row {self.t + 1}: lacks the user column {self._user!r}")
            user = row[self._user]
            row = {name: value for name, value in row.items() if name != self._user}
        self._check_user(user)
        return row, user

    def _check_user(self, user: Hashable) -> None:
        if user is None or user != user or not isinstance(user, Hashable):
            raise BadRow(
                f"row {self.t + 1}: whose row it is is not said (user={user!r}); pass user=, or name the column"
            )

    def _table(self, table: Any, users: Iterable[Hashable] | None) -> tuple[FloatArray, Sequence[Hashable]]:
        if users is None:
            if self._user is None or self._user not in table.columns:
                raise BadParameter(f"the table lacks the user column {self._user!r}; pass users=, or name it")
            users = list(table[self._user])
        if self._user in table.columns:
            table = table[[name for name in table.columns if name != self._user]]
        return self._gate.table(table), list(users)

    def _capped(self, rows: Any, over: list[int]) -> Any:
        """The rows, those of the given numbers replaced by what the gate turns into zero rows."""
        if not over:
            return rows
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub" and rows.ndim == 2:
            rows = rows.astype(np.float64)
            if self._gate.n_features is None:
                self._gate.fix(None, rows.shape[1])
            rows[over] = self._gate.neutral(rows.shape[1])
            return rows
        rows, late = list(rows), set(over)
        if self._gate.n_features is None:  # the first row fixes the features, and is never over
            with self._first_row():
                self._gate.values(rows[0], 1)
        return [self._zero_row() if i in late else row for i, row in enumerate(rows)]

    def _zero_row(self) -> FloatArray:
        assert self._gate.n_features is not None
        return self._gate.neutral(self._gate.n_features)
