"""Public calendars: rows are counted in periods of time, and the number of rows is private.

``release_every="1d"`` makes each period of a public grid one input of the algorithm: the sum of the rows in it.
`Calendar` has the grid, and `streampca.stream.periods` the open period of a stream.

*Guarantee.* Let two data sets differ in one row, which is absent from one of them, and let ``x_1, x_2, ...`` be the
sums of the rows in the periods.

1. The grid is public, and the period of a row depends on its own time or arrival only. Other rows stay in their
   periods, so the sums differ in one period only, there by ``b b^T`` for the admitted row b.
2. ``||b b^T|| <= ||b||**2``, which is at most 1, or 1 + c**2 with the constant of `linalg.centering`: the sensitivity
   under zero-out, for which the noise is calibrated. The matrix mechanism is therefore mu-GDP for the addition and the
   removal of a row. Later rows may depend on earlier releases (`matrix_factorization.base`).
3. Every period up to a public time is released, also without rows, and no released value but the noisy sums depends on
   the rows: the divisor of a mean is computed from the noisy corner, and nothing is divided without one.

Rows of a file are in order of time in both data sets, because their order says nothing then. Live rows are counted when
they arrive, by the clock of the system and never by a time of their own: a row from the future would close the
periods of the others. `CAVEAT` has what remains to be assumed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple, Self

from streampca.errors import BadParameterError

MANUAL = "manual"
CAVEAT = (
    "it is assumed that the times at which other rows arrive do not depend on the protected ones; the times of "
    "releases and the sizes of stores are not protected"
)
#: Most periods that are closed at a time.
MOST = 10_000
_DURATION = re.compile(r"([1-9][0-9]{0,8})(s|min|h|d|w)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_WORDS = {"s": "second", "min": "minute", "h": "hour", "d": "day", "w": "week"}
_SECOND = 10**6  # microseconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def clock() -> int:
    """Return the time of the system in microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def length_of(name: str, text: object) -> int:
    """Return the length of a duration such as ``"1d"`` in microseconds."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise BadParameterError(name, text, "a whole number of s, min, h, d or w, such as '1d' or '15min'")
    return int(found[1]) * _SECONDS[found[2]] * _SECOND


def in_words(duration: str) -> str:
    """Return a duration in words: ``"one day"`` for ``"1d"``."""
    found = _DURATION.fullmatch(duration)
    assert found is not None
    return f"one {_WORDS[found[2]]}" if found[1] == "1" else f"{found[1]} {_WORDS[found[2]]}s"


def count_of(name: str, duration: object, every: str) -> int:
    """Return the number of periods of length ``every`` in a duration; 0 if it is no multiple of them."""
    count, rest = divmod(length_of(name, duration), 1 if every == MANUAL else length_of("release_every", every))
    return 0 if rest or every == MANUAL else count


def periods_of(name: str, value: Any, every: str) -> Any:
    """Return a duration as a number of periods of length ``every``; other values unchanged."""
    if not isinstance(value, str) or value == "auto":
        return value
    count = count_of(name, value, every)
    if not count:
        raise BadParameterError(name, value, f"a number of periods, or a multiple of release_every={every!r}")
    return count


def instant(value: object, *, naive: bool = False) -> int | None:
    """Return a time in microseconds since 1970, UTC; None for values that are none.

    Times are datetimes, dates (at midnight), ISO 8601 texts, and seconds since 1970. Those without a zone are in UTC if
    ``naive``, else they are none.
    """
    try:
        if isinstance(value, (bytes, bytearray)):
            value = value.decode()
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if value != value:  # NaT and nan
            return None
        if hasattr(value, "to_pydatetime"):
            value = value.to_pydatetime(warn=False)  # of pandas: nanoseconds are cut off
        elif type(value).__module__ == "numpy":
            value = value.astype("datetime64[us]").item() if "time" in type(value).__name__ else value.item()  # type: ignore[attr-defined]
        if type(value) is date:
            value = datetime(value.year, value.month, value.day)
        if isinstance(value, datetime):
            aware = value.replace(tzinfo=UTC) if value.tzinfo is None and naive else value
            # Subtraction of whole microseconds is exact. A time without a zone raises.
            return (aware - _EPOCH) // timedelta(microseconds=1)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**36:  # refuses nan, too
            return int(value // 1) * _SECOND + int(value % 1 * _SECOND)
    except (ValueError, TypeError, AttributeError, OverflowError):
        pass
    return None


class Calendar(NamedTuple):
    """Public grid of periods in UTC: `length` and the `start` of the first one, in microseconds.

    The length is None if the caller closes each period: `Stream.close_period`.
    """

    every: str
    length: int | None
    start: int

    @classmethod
    def of(cls, every: Any, start: object) -> Self | None:
        """Return the calendar of a stream; None if ``every`` is a number of rows."""
        if not isinstance(every, str):
            if start is not None:
                raise BadParameterError("start", start, f"None with release_every={every!r}, a number of rows")
            return None
        if every == MANUAL:
            if start is not None:
                raise BadParameterError("start", start, "None with release_every='manual'")
            return cls(every, None, 0)
        return cls(every, length_of("release_every", every), cls.time("start", start))

    @staticmethod
    def time(name: str, value: object) -> int:
        """Return a parameter as a time, in microseconds."""
        at = instant(value)
        if at is None:
            raise BadParameterError(name, value, "a time with its time zone, such as '2026-01-01T00:00+01:00'")
        return at

    def number(self, at: int) -> int:
        """Return the number of complete periods before a time; negative before the start."""
        return (at - self.start) // (self.length or 1)

    def bounds(self, t: int) -> tuple[datetime, datetime]:
        """Return start and end of period t, from 1."""
        length = timedelta(microseconds=self.length or 0)
        end = _EPOCH + timedelta(microseconds=self.start) + t * length
        return end - length, end

    def phase(self, duration: str) -> str:
        """Return where periods of this duration begin, in words; "" if one begins with 1970, in UTC."""
        # Privacy: part of the unit, because a day of one grid overlaps two of another: their costs do not add up.
        at = _EPOCH + timedelta(microseconds=self.start % length_of("period", duration))
        text = at.replace(tzinfo=None).isoformat(" ").removeprefix("1970-01-01 ").removesuffix(":00")
        return "" if at == _EPOCH else f" from {text} UTC"

    def terms(self) -> Mapping[str, Any]:
        """Return the calendar as JSON values, for the terms of releases."""
        return {"release_every": self.every, "start": None if self.length is None else self.bounds(1)[0].isoformat()}
