"""Privacy for users with several rows each."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streampca.conversion import as_block, check_iterable, is_arrow, is_frame
from streampca.errors import BadParameterError, BadRowError, short
from streampca.exclusive import Guard, exclusive
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.processors.base import Algorithm
from streampca.regret.private_regret import LivePrivateRegret
from streampca.regret.regret import Regret
from streampca.release.release import Release
from streampca.rows.protocol import RowSource
from streampca.rows.report import AdmissionReport
from streampca.stream.step import Step, Steps
from streampca.stream.stream import Stream


class _Coming(NamedTuple):
    """Rows passed to the stream, and the number of each among its user's rows."""

    after: int  #: rows of the stream before them
    users: Sequence[Hashable]  #: whose row each is
    numbers: Sequence[int]  #: its number among its user's rows


class _CappedStream(Stream):
    """The `Stream` that a `UserStream` feeds."""

    _caps_users = True


def _is_name(user: Any) -> bool:
    """True if the rows of one user are known by it: if it is equal to every other object of its value.

    Missing values are not, nor are objects of classes that define no equality, nor tuples that hold one.
    """
    if isinstance(user, (tuple, frozenset)):
        return all(map(_is_name, user))
    kind: Any = type(user)
    try:
        hash(user)
        return user is None or (kind.__hash__ is not object.__hash__ and bool(user == user))
    except (TypeError, ValueError):  # a list, an array; pandas.NA, whose equality is not known
        return False


class UserStream:
    """A stream whose guarantee is for all rows of a user together.

    Rows of a user past the algorithm's ``max_rows_per_user`` become zero
    rows: they take their place in the stream and change nothing.

    Parameters
    ----------
    algorithm : calibrated with ``max_rows_per_user=``, e.g. `PrivateFPL`.
    user : name of the column that holds the user of a row, for rows that are
        mappings. It is not a feature.
    options : those of `Stream`, but for ``store``.

    Attributes
    ----------
    stream : the `Stream` of capped rows. Push rows here, not there.
    guard : lock and busy mark of `push`, `push_many` and `finish`.

    Raises
    ------
    BadParameterError
        If the algorithm is not calibrated for users, or an option is not available.

    Notes
    -----
    *Guarantee.* That of the algorithm, for neighbours that differ in all
    rows of one user: against zero rows (zero-out), or against other rows
    (replace). How many rows there are and whose they are is public to the
    extent that positions are; a row is capped by its number among its user's rows, which no
    row's content changes. Users are counted in memory. Curator only.

    With ``center=True``, capped rows count as zero rows in the mean, too.

    *Interrupts and threads.* As for `Stream`: after any exception, a user's rows
    are counted exactly as far as the stream has taken them.
    """

    def __init__(self, algorithm: Algorithm, *, user: str | None = None, **options: Any) -> None:
        cap = getattr(algorithm, "max_rows_per_user", None)
        if cap is None:
            raise BadParameterError(
                "the algorithm is calibrated for one row a user; give it max_rows_per_user=, or use Stream"
            )
        if options.get("store"):
            raise BadParameterError(f"store={options['store']!r} is not available for users; leave it out")
        self.stream = _CappedStream(algorithm, **options)
        self._user = user
        self._cap = int(cap)
        self._counts: dict[Hashable, int] = {}
        self._coming: _Coming | None = None
        self.guard = Guard("stream", self.stream.engine.guard)

    @exclusive
    def push(self, row: Any, user: Hashable = None) -> Step:
        """Feed one row of a user; see `Stream.push`.

        Parameters
        ----------
        row : as for `Stream.push`; a mapping may hold the user's column.
        user : whose row it is, if the row does not say: a string, a number, or a tuple of such; the same one each
            time: 12 and "12" are two users.
        """
        row, user = self._owned(row, user)
        numbers = self._numbers([user])
        return self.stream.push(self._zero_row() if numbers[0] > self._cap else row)

    def push_many(self, rows: Any, users: Iterable[Hashable] | None = None) -> Steps:
        """Feed a block of rows; see `Stream.push_many`.

        Parameters
        ----------
        rows : (n, d) array, a table, or a sequence of rows.
        users : whose row each is, if rows do not say.
        """
        return self._push_many(as_block(rows), users)

    @exclusive
    def _push_many(self, rows: Any, users: Iterable[Hashable] | None) -> Steps:
        if is_frame(rows):
            rows, users = self._table(rows, users)
        elif users is None:
            pairs = [self._owned(row, None) for row in rows]
            rows, users = [row for row, _ in pairs], [user for _, user in pairs]
        if isinstance(users, (str, bytes)) or not isinstance(users, Iterable) or getattr(users, "ndim", 1) == 0:
            raise BadParameterError(f"users={short(users)} must name one user for each row")
        whose = [self._checked_user(user) for user in users]
        if len(whose) != len(rows):
            raise BadParameterError(f"{len(whose)} users given for {len(rows)} rows; name one for each row")
        numbers = self._numbers(whose)
        return self.stream.push_many(self._capped(rows, [i for i, n in enumerate(numbers) if n > self._cap]))

    def run(self, rows: Iterable[Any]) -> Iterator[Step]:
        """Feed mappings or a table that hold the user's column, mappings lazily; yield a `Step` a row."""
        if isinstance(rows, RowSource):
            raise BadParameterError("sources hold features only; feed mappings, or push_many(rows, users=...)")
        if is_frame(rows) or is_arrow(rows):
            yield from self.push_many(rows)
            return
        check_iterable(rows)
        for row in rows:
            yield self.push(row)

    @exclusive
    def finish(self) -> Release | None:
        """End the stream; see `Stream.finish`."""
        return self.stream.finish()

    # -- reading --------------------------------------------------------------------

    @property
    def t(self) -> int:
        """Rows seen, capped ones included."""
        return self.stream.t

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm at work."""
        return self.stream.algorithm

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all releases of this stream together, for all rows of a user."""
        return self.stream.guarantee

    @property
    def release(self) -> Release | None:
        """The latest release, or None before the first."""
        return self.stream.release

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the features, if rows are named."""
        return self.stream.features

    @property
    def row_norm(self) -> float:
        """Norm onto which longer rows are scaled."""
        return self.stream.row_norm

    @property
    def regret(self) -> Regret:
        """The exact regret, live. Curator only."""
        return self.stream.regret

    @property
    def private_regret(self) -> LivePrivateRegret:
        """The publishable regret."""
        return self.stream.private_regret

    @property
    def admission(self) -> AdmissionReport:
        """Report on the admission of the rows so far; rows past the cap count as rows. Curator only."""
        return self.stream.admission

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, guard=Guard("stream", state["stream"].engine.guard))

    def __repr__(self) -> str:
        return f"<UserStream of {self.algorithm!r}, {self.t} rows seen: {self.guarantee}>"

    # -- how it works ---------------------------------------------------------------

    def _numbers(self, users: Sequence[Hashable]) -> list[int]:
        """The number of each row among its user's rows, noted before the stream takes them.

        Rows that the stream took are counted at the next call. Counts are set, not
        added to, so counting again after an interrupt changes nothing.
        """
        coming, counts = self._coming, self._counts
        if coming is not None:
            taken = self.stream.t - coming.after
            counts.update(zip(coming.users[:taken], coming.numbers[:taken], strict=True))
        numbers, further = [], dict[Hashable, int]()
        for user in users:
            further[user] = further.get(user, counts.get(user, 0)) + 1
            numbers.append(further[user])
        self._coming = _Coming(self.stream.t, users, numbers)
        return numbers

    def _owned(self, row: Any, user: Hashable) -> tuple[Any, Hashable]:
        if user is None and self._user is not None and isinstance(row, Mapping):
            if self._user not in row:
                raise BadRowError(f"row {self.t + 1}: lacks the user column {self._user!r}")
            user = row[self._user]
            row = {name: value for name, value in row.items() if name != self._user}
        return row, self._checked_user(user)

    def _checked_user(self, user: Any) -> Hashable:
        """The user, of an Arrow scalar its value; raises `BadRowError` if it is no name."""
        if type(user) in (str, int):  # most are: this runs once a row
            return user  # type: ignore[no-any-return]
        known: Hashable = user.as_py() if hasattr(user, "as_py") else user
        if known is None or not _is_name(known):
            raise BadRowError(
                f"row {self.t + 1}: whose row it is is not said (user={short(user)}); "
                "pass user=, a string or a number, or name the column"
            )
        return known

    def _table(self, table: Any, users: Iterable[Hashable] | None) -> tuple[Any, Iterable[Hashable]]:
        """The table without the user column, and whose each row is."""
        if users is None:
            if self._user is None or self._user not in table.columns:
                raise BadParameterError(f"the table lacks the user column {self._user!r}; pass users=, or name it")
            users = list(table[self._user])
        if self._user in table.columns:
            table = table[[name for name in table.columns if name != self._user]]
        return table, users

    def _capped(self, rows: Any, over: list[int]) -> Any:
        """The rows, those of the given numbers replaced by what is admitted as the zero row."""
        if not over:
            return rows
        admission = self.stream.engine.now.admission.fixed_by_block(rows)
        zero = admission.neutral(admission.n_features or 0)
        if is_frame(rows):
            import pandas as pd

            values = admission.table(rows)
            values[over] = zero
            return pd.DataFrame(values, columns=admission.features)
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub" and rows.ndim == 2:
            rows = rows.astype(np.float64)
            rows[over] = zero
            return rows
        late = set(over)
        return [zero if i in late else row for i, row in enumerate(rows)]

    def _zero_row(self) -> FloatArray:
        admission = self.stream.engine.now.admission
        return admission.neutral(admission.n_features or 0)
