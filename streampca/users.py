"""Privacy for users with several rows each: `UserStream` caps the number of rows per user."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from streampca.conversion import as_block, check_iterable, is_arrow, is_frame
from streampca.errors import BadParameterError, BadRowError, UsageError, short
from streampca.exclusive import Guard, exclusive
from streampca.processors.base import Algorithm
from streampca.release.release import Release
from streampca.rows.admission import bad_values
from streampca.rows.protocol import RowSource
from streampca.rows.report import tell_curator
from streampca.stream.step import Step, Steps
from streampca.stream.stream import Stream


class _CappedStream(Stream):
    _caps_users = True  # `Stream` refuses an algorithm calibrated for users without it


def _is_name(user: Any) -> bool:
    """Return whether a value equals every other object of its value, so that it identifies a user."""
    # Missing values such as nan and NaT do not, nor objects of classes without an equality, nor tuples of these.
    if isinstance(user, (tuple, frozenset)):
        return all(map(_is_name, user))
    kind: Any = type(user)
    try:
        hash(user)
        return user is None or (kind.__hash__ is not object.__hash__ and bool(user == user))
    except (TypeError, ValueError):  # a list, an array; pandas.NA, whose equality is undefined
        return False


class UserStream:
    """Stream whose guarantee covers all rows of a user together.

    Rows of a user beyond the algorithm's ``max_rows_per_user`` are absent: they advance the stream by a row and add
    nothing to any sum. `Stream` describes the attributes and methods without a description.

    Parameters
    ----------
    algorithm : Algorithm
        Algorithm calibrated with ``max_rows_per_user=``, e.g. `PrivateFPL`.
    user : str or None, default=None
        Name of the column that holds the user, for rows that are mappings. It is not a feature.
    options : dict
        Options of `Stream` except ``store``. One of ``bounds`` and ``row_norm`` is required.

    Attributes
    ----------
    stream : Stream
        The stream of capped rows. Push no rows to it directly.
    guard : Guard
        Lock and busy mark of `push`, `push_many` and `finish`.

    Raises
    ------
    UsageError
        If the algorithm is not calibrated for users, or an option is not available.

    Notes
    -----
    *Guarantee.* That of the algorithm, for neighbors that differ in all rows of one user: against absent rows
    (zero-out), or against other rows (replace). The number of rows and their users are as public as the positions of
    rows. A row is capped by its number among its user's rows, which does not depend on the content of any row. Users
    are counted in memory. Curator only.

    *Interrupts and threads.* As for `Stream`: after any exception, the rows of a user are counted exactly as far as the
    stream has absorbed them.
    """

    def __init__(self, algorithm: Algorithm, *, user: str | None = None, **options: Any) -> None:
        cap = getattr(algorithm, "max_rows_per_user", None)
        if cap is None:
            raise BadParameterError(
                "algorithm", ..., "one calibrated with max_rows_per_user=", advice="Use Stream for one row a user"
            )
        if options.get("store"):
            raise UsageError(f"store={options['store']!r} is not available for users")
        self.stream = _CappedStream(algorithm, **options)
        self._user = user
        self._cap = int(cap)
        self._counts: dict[Hashable, int] = {}
        # Rows passed to the stream after its first ``coming[0]`` rows: user, and number among the user's rows.
        self._coming: tuple[int, Sequence[Hashable], Sequence[int]] = (0, (), ())
        self.guard = Guard("stream", self.stream.engine.guard)

    @exclusive
    def push(self, row: Any, user: Hashable = None) -> Step:
        """Feed one row; see `Stream.push`.

        Parameters
        ----------
        row : array or mapping
            A row as for `Stream.push`; a mapping may hold the user's column.
        user : hashable, default=None
            User of the row, if the row does not hold it: a string, a number, or a tuple of these. 12 and "12" are two
            users.
        """
        row, user = self._owned(row, user)
        # Privacy hazard: whether a row is capped must depend on users and positions only, never on its content.
        if self._numbers([user])[0] > self._cap:
            admission = self.stream.engine.now.admission
            row = bad_values(None, admission.n_features or 0)
        return self.stream.push(row)

    def push_many(self, rows: Any, users: Iterable[Hashable] | None = None) -> Steps:
        """Feed a block of rows; see `Stream.push_many`. ``users`` holds the user of each row, if the rows do not."""
        return self._push_many(as_block(rows), users)

    @exclusive
    def _push_many(self, rows: Any, users: Iterable[Hashable] | None) -> Steps:
        if is_frame(rows):
            if users is None:
                if self._user is None or self._user not in rows.columns:
                    raise UsageError(f"the table lacks the user column {self._user!r}. Pass users=, or name it")
                users = list(rows[self._user])
            rows = rows[[name for name in rows.columns if name != self._user]]
        elif users is None:
            pairs = [self._owned(row, None) for row in rows]
            rows, users = [row for row, _ in pairs], [user for _, user in pairs]
        if isinstance(users, (str, bytes)) or not isinstance(users, Iterable) or getattr(users, "ndim", 1) == 0:
            raise BadParameterError("users", users, "one user for each row")
        # All users are checked before any is counted, so that a bad one leaves no trace.
        whose = [self._checked_user(user) for user in users]
        if len(whose) != len(rows):
            raise UsageError(f"{len(whose)} users given for {len(rows)} rows. Name one for each row")
        over = np.array(self._numbers(whose)) > self._cap
        if not over.any():
            return self.stream.push_many(rows)
        # Rows over the cap are replaced before they are checked: their content has no effect, not even an error.
        admission = self.stream.engine.now.admission.fixed_by_block(rows)
        zero = bad_values(None, admission.n_features or 0)
        if is_frame(rows):
            values = admission.table(rows)
            values[over] = zero
            rows = pd.DataFrame(values, columns=admission.features)
        elif isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub" and rows.ndim == 2:
            rows = np.where(over[:, None], zero, rows)
        else:
            rows = [zero if late else row for late, row in zip(over, rows, strict=True)]
        return self.stream.push_many(rows)

    def run(self, rows: Iterable[Any]) -> Iterator[Step]:
        """Feed mappings or a table that hold the user's column, mappings lazily; yield a `Step` a row."""
        if isinstance(rows, RowSource):
            raise UsageError("sources hold features only. Feed mappings, or push_many(rows, users=...)")
        if is_frame(rows) or is_arrow(rows):
            yield from self.push_many(rows)
        else:
            check_iterable(rows)
            for row in rows:
                yield self.push(row)
        tell_curator(self.admission)

    @exclusive
    def finish(self) -> Release | None:
        """End the stream; see `Stream.finish`."""
        return self.stream.finish()

    # -- reading --------------------------------------------------------------------

    t = property(attrgetter("stream.t"), doc="Number of rows seen, including capped ones.")
    algorithm = property(attrgetter("stream.algorithm"), doc="Algorithm of the stream.")
    guarantee = property(attrgetter("stream.guarantee"), doc="Guarantee of all releases, for all rows of a user.")
    release = property(attrgetter("stream.release"), doc="Latest release, or None.")
    features = property(attrgetter("stream.features"), doc="Names of the features, or None.")
    row_norm = property(attrgetter("stream.row_norm"), doc="Norm to which longer rows are scaled.")
    regret = property(attrgetter("stream.regret"), doc="Exact regret, live. Curator only.")
    private_regret = property(attrgetter("stream.private_regret"), doc="Publishable regret, live.")
    admission = property(attrgetter("stream.admission"), doc="Report on the admission of the rows. Curator only.")

    def __setstate__(self, state: dict[str, Any]) -> None:
        # The guard of the copy acquires the guard of the copied stream, not of the original.
        self.__dict__.update(state, guard=Guard("stream", state["stream"].engine.guard))

    def __repr__(self) -> str:
        return f"<UserStream of {self.algorithm!r}, {self.t} rows seen: {self.guarantee}>"

    # -- how it works ---------------------------------------------------------------

    def _numbers(self, users: Sequence[Hashable]) -> list[int]:
        """Return the number of each row among its user's rows."""
        # Rows that the stream absorbed are counted at the next call. Counts are set, not incremented, so that counting
        # them twice after an interrupt changes nothing.
        (after, whose, known), counts = self._coming, self._counts
        taken = self.stream.t - after
        counts.update(zip(whose[:taken], known[:taken], strict=True))
        # Committed counts stay as they are until the stream has absorbed the rows: a refused row is not counted.
        numbers, further = [], dict[Hashable, int]()
        for user in users:
            further[user] = further.get(user, counts.get(user, 0)) + 1
            numbers.append(further[user])
        self._coming = self.stream.t, users, numbers
        return numbers

    def _owned(self, row: Any, user: Hashable) -> tuple[Any, Hashable]:
        if user is None and self._user is not None and isinstance(row, Mapping):
            if self._user not in row:
                raise BadRowError(self.t + 1, f"lacks the user column {self._user!r}")
            user = row[self._user]
            # The column of users is no feature, so that the stream must not see it.
            row = {name: value for name, value in row.items() if name != self._user}
        return row, self._checked_user(user)

    def _checked_user(self, user: Any) -> Hashable:
        """Return the user, converted from an Arrow scalar. Raises `BadRowError` if it identifies no user."""
        if type(user) in (str, int):  # the common case, once a row
            return user  # type: ignore[no-any-return]
        known: Hashable = user.as_py() if hasattr(user, "as_py") else user
        if known is None or not _is_name(known):
            raise BadRowError(
                self.t + 1, f"user={short(user)} identifies no user. Pass a string or a number, or name the column"
            )
        return known
