"""Publishable regret: intervals, under the guarantee of the releases from which they are computed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streampca.errors import BadParameterError, NoReleaseError, UsageError, reason
from streampca.linalg.counts import check_count, check_share
from streampca.linalg.memory import KEPT, History
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import KEY_BYTES, Randomness
from streampca.regret.intervals import best_less_reward
from streampca.release.release import Release, before_centering
from streampca.state import State
from streampca.tables import record_frame

if TYPE_CHECKING:
    import pandas as pd

Rows = Literal["fixed", "adaptive"]


@dataclass(frozen=True)
class PrivateRegretRecord:
    """Regret after t rows, as intervals. Publishable under `guarantee`."""

    t: int  #: number of rows
    confidence: float  #: minimum probability that each of the intervals covers, at this t only
    reward: float  #: noisy sum of rewards, in units of row_norm**2
    reward_std: float  #: standard deviation of its noise
    opt: tuple[float, float]  #: (low, high), interval for the best reward in hindsight
    regret: tuple[float, float]  #: (low, high), interval for OPT less the exact sum of rewards
    rows: str  #: ``"fixed"`` if the intervals hold for rows that do not depend on releases, ``"adaptive"`` if for any
    #: Number of rows to divide by for figures per row: t, or the private number of usable rows if the stream is
    #: centered (`linalg.centering.counted`).
    count: float
    guarantee: Guarantee  #: that of all releases of the stream together; this record adds nothing to it

    @property
    def average(self) -> tuple[float, float]:
        """Interval for the regret, divided by the number of rows."""
        return self.regret[0] / self.count, self.regret[1] / self.count

    @classmethod
    def of(cls, release: Release, *, confidence: float = 0.95, rows: Rows = "fixed") -> PrivateRegretRecord:
        """Compute the record from a release. Raises `UsageError` if it has no rewards."""
        check_rows(rows)
        # Privacy: only released numbers are read below, so that a record is post-processing.
        rewards = release.details.get("rewards")
        noise = release.own_noise_std
        if rewards is None or noise is None or release.packed is None:
            raise UsageError(
                "the release has no rewards or no Gram matrix. Use PrivateFPL(..., publish_regret=True), and keep "
                "Gram matrices in the file"
            )
        # In units of row_norm = 1: the square of a variance overflows for norms near 1e77.
        unit, reward, std = release.row_norm**2, float(rewards["sum"]), float(rewards["std"])
        # The split of the noise is drawn by a released seed: every reader gets the same interval.
        split = Randomness(int(rewards["split"]).to_bytes(KEY_BYTES, "big")).stream("split")
        common: dict[str, Any] = {"confidence": confidence, "adaptive": rows == "adaptive"}
        # In units of row_norm = 1 the reward of a row is at most 1.
        gram, k = before_centering(release), release.n_components
        most, least, divisor = float(release.t), 0.0, float(release.t)  # no reward is above row_norm**2
        if release.is_centered:  # undo the centering: intervals refer to the sums of squares and of rows
            details = release.details
            noise = float(details["joint_noise_std"]) / unit
            sums, divisor = np.asarray(details["sums"]) / release.row_norm, float(details["count"])
            common |= {"sums": sums, "count": float(details["noisy_count"])}
            gram = gram[:-1, :-1]
            # A centered reward is ||a||^2 less a squared distance, of at most (1 + 1)^2 where ||a|| is 1.
            least = -3.0 * most
        # One split serves both intervals: each holds with its own probability, not both jointly.
        opt = best_less_reward(gram, noise, k, split, **common)
        regret = best_less_reward(gram, noise, k, split, reward=reward, reward_std=std, **common)
        return cls(
            release.t, confidence, reward * unit, std * unit, _pair(np.clip(opt, 0.0, most) * unit),
            _pair(np.clip(regret, -most, (most, most - least)) * unit), rows, divisor, release.guarantee,
        )  # fmt: skip

    def to_json(self) -> str:
        """Return one line of JSON for `from_json`."""
        return json.dumps(vars(self) | {"guarantee": self.guarantee.to_dict()}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> PrivateRegretRecord:
        """Read one line written by `to_json`. Raises `UsageError` if the text is not a record."""
        try:
            data = json.loads(text)
            kinds: dict[str, Any] = {"t": int, "opt": _pair, "regret": _pair, "rows": str}
            kinds["guarantee"] = Guarantee.from_dict
            return cls(**{name: kinds.get(name, float)(data[name]) for name in cls.__dataclass_fields__})
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:
            raise UsageError(f"not a record of private regret ({reason(problem)}); pass a line of to_json") from problem


@dataclass(frozen=True, kw_only=True)
class PrivateRegret:
    """Settings of the publishable regret of a stream.

    Parameters
    ----------
    confidence : minimum probability that each interval covers.
    every : number of rows after which the next release is recorded. If None, the step between records doubles whenever
        there are more than 512.
    rows : ``"fixed"`` for rows that do not depend on releases; ``"adaptive"`` for wider intervals that hold for any.
    """

    confidence: float = 0.95
    every: int | None = None
    rows: Rows = "fixed"

    def __post_init__(self) -> None:
        check_share("confidence", self.confidence)
        check_count("every", self.every, optional=True)
        check_rows(self.rows)

    def start(self) -> PrivateRegretRecords:
        """Return the records before the first release."""
        limit = KEPT if self.every is None else None
        return PrivateRegretRecords(self, 0, None, History(PrivateRegretRecord.from_json, limit))


@dataclass(frozen=True, eq=False)
class PrivateRegretRecords(State):
    """Publishable regret of a stream after some releases: an immutable value."""

    kept = ("seen", "sample")

    config: PrivateRegret
    seen: int  # releases so far
    latest: Release | None  # not part of a snapshot
    sample: History

    @property
    def history(self) -> list[PrivateRegretRecord]:
        """Records so far: a new list. Publishable."""
        return self.sample.records

    def now(self) -> PrivateRegretRecord:
        """Return the record of the latest release. Raises `NoReleaseError` if there is none."""
        if self.latest is None:
            raise NoReleaseError("nothing has been released yet, so there is no regret yet")
        return PrivateRegretRecord.of(self.latest, confidence=self.config.confidence, rows=self.config.rows)

    def to_frame(self) -> pd.DataFrame:
        """Return the records as a pandas frame, a row each. Publishable."""
        return record_frame(PrivateRegretRecord, self.history)

    def observe(self, release: Release) -> PrivateRegretRecords:
        """Return the records after one more release."""
        every, before = self.config.every, 0 if self.latest is None else self.latest.t
        after = replace(self, seen=self.seen + 1, latest=release)
        # Records depend on the number of a release only, so that the times of records are public.
        is_due = after.seen % self.sample.step == 0 if every is None else release.t // every != before // every
        return replace(after, sample=self.sample.append(after.now())) if is_due else after


def check_rows(rows: object) -> None:
    """Raise `BadParameterError` for an unknown kind of rows."""
    if rows not in ("fixed", "adaptive"):
        raise BadParameterError("rows", rows, "'fixed' or 'adaptive'")


def _pair(values: Any) -> tuple[float, float]:
    low, high = values
    return float(low), float(high)
