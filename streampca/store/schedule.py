"""When to commit, and when to take a snapshot."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta

from streampca.errors import BadParameter

_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h|rows?)\s*")


@dataclass(frozen=True)
class Schedule:
    """Rows or seconds between commits, one of them, and seconds between snapshots."""

    rows: int | None
    seconds: float | None
    snapshot_seconds: float

    @classmethod
    def of(cls, commit_every: int | str | timedelta, snapshot_every: str | timedelta) -> Schedule:
        """Read the parameters of a store.

        Raises
        ------
        BadParameter
            If one is outside its domain.
        """
        snapshot = _seconds("snapshot_every", snapshot_every)
        if isinstance(commit_every, str) and (found := _TEXT.fullmatch(commit_every)) and found[2].startswith("row"):
            commit_every = int(found[1]) if found[1].isdigit() else 0
        if isinstance(commit_every, int) and not isinstance(commit_every, bool):
            if commit_every < 1:
                raise BadParameter(f"commit_every={commit_every!r} must be at least 1 row")
            return cls(commit_every, None, snapshot)
        return cls(None, _seconds("commit_every", commit_every), snapshot)


def _seconds(name: str, value: object) -> float:
    seconds = math.nan
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str) and (found := _TEXT.fullmatch(value)) and found[2] in _UNITS:
        seconds = float(found[1]) * _UNITS[found[2]]
    if not 0.0 < seconds < math.inf:
        rows = "a number of rows, or " if name == "commit_every" else ""
        raise BadParameter(f"{name}={value!r} must be {rows}a time such as '200ms', '2s' or '5min'")
    return seconds
