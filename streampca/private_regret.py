"""Regret that may leave: intervals, under the guarantee of the releases they are read from.

Everything here is a function of releases (post-processing). The exact regret,
for the curator, is in `streampca.regret`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from streampca.errors import BadParameter, NoRelease
from streampca.intervals import best_less_reward, check_confidence
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import KEY_BYTES, Randomness
from streampca.processors.base import check_count
from streampca.release import Release

Rows = Literal["fixed", "adaptive"]

#: How many records an unthinned history may grow to before every other one goes.
KEPT = 512


@dataclass(frozen=True)
class PrivateRegretRecord:
    """Regret after t rows, as intervals. Publishable under `guarantee`.

    Attributes
    ----------
    t : rows seen.
    confidence : probability with which each of the intervals covers, at this t by itself.
    reward, reward_std : noisy sum of rewards and the sd of its noise, in units of row_norm**2.
    opt : (low, high), interval for the best reward in hindsight.
    regret : (low, high), interval for OPT less the exact sum of rewards.
    rows : ``"fixed"`` if the intervals hold for rows that do not depend on
        releases, ``"adaptive"`` if for any.
    guarantee : that of all releases of the stream together; this record adds nothing to it.
    """

    t: int
    confidence: float
    reward: float
    reward_std: float
    opt: tuple[float, float]
    regret: tuple[float, float]
    rows: str
    guarantee: Guarantee

    @property
    def average(self) -> tuple[float, float]:
        """Interval for the regret per row."""
        return self.regret[0] / self.t, self.regret[1] / self.t

    @classmethod
    def of(cls, release: Release, *, confidence: float = 0.95, rows: Rows = "fixed") -> PrivateRegretRecord:
        """Read the record off a release that carries rewards; anyone who has the release can.

        Raises
        ------
        BadParameter
            If the release carries no rewards, or a parameter is outside its domain.
        """
        check_confidence(confidence)
        check_rows(rows)
        rewards = release.details.get("rewards")
        if rewards is None or release.noise_std is None or not release.has_gram:
            raise BadParameter(
                "this release carries no rewards or no Gram matrix; use PrivateFPL(..., publish_regret=True), "
                "and keep Gram matrices in the file"
            )
        unit = release.row_norm**2
        reward, std = float(rewards["sum"]) * unit, float(rewards["std"]) * unit
        split = Randomness(int(rewards["split"]).to_bytes(KEY_BYTES, "big")).stream("split")
        common: dict[str, Any] = {"confidence": confidence, "adaptive": rows == "adaptive"}
        gram, noise, k = release.gram, release.noise_std, release.n_components
        opt = best_less_reward(gram, noise, k, split, **common)
        regret = best_less_reward(gram, noise, k, split, reward=reward, reward_std=std, **common)
        most = release.t * unit  # no reward is above row_norm**2, none below 0
        return cls(
            release.t,
            confidence,
            reward,
            std,
            (_clip(opt[0], 0.0, most), _clip(opt[1], 0.0, most)),
            (_clip(regret[0], -most, most), _clip(regret[1], -most, most)),
            rows,
            release.guarantee,
        )

    def to_json(self) -> str:
        """One line of JSON that `from_json` reads back."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return json.dumps(values | {"guarantee": self.guarantee.to_dict()}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> PrivateRegretRecord:
        """Read one line written by `to_json`.

        Raises
        ------
        BadParameter
            If the text is not a record.
        """
        try:
            data = json.loads(text)
            made = cls(
                int(data["t"]),
                float(data["confidence"]),
                float(data["reward"]),
                float(data["reward_std"]),
                _pair(data["opt"]),
                _pair(data["regret"]),
                str(data["rows"]),
                Guarantee.from_dict(data["guarantee"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise BadParameter(f"not a record of private regret ({problem}); expected a line of to_json") from problem
        return made


class PrivateRegret:
    """The publishable regret of a stream, live.

    Parameters
    ----------
    confidence : probability with which each interval covers.
    every : keep a record at the first release after every so many rows. Left
        out, records are kept at steps that double whenever there are more than 512.
    rows : ``"fixed"`` for rows that do not depend on releases, which is how
        regret is usually meant; ``"adaptive"`` for wider intervals that hold for any.

    Attributes
    ----------
    history : the kept records. Publishable.
    """

    def __init__(self, *, confidence: float = 0.95, every: int | None = None, rows: Rows = "fixed") -> None:
        check_confidence(confidence)
        check_count("every", every, optional=True)
        check_rows(rows)
        self.confidence = confidence
        self.every = every
        self.rows: Rows = rows
        self._history: list[PrivateRegretRecord] = []
        #: Called before anything is read: a durable stream waits for its rows here.
        self.hold: Callable[[], None] = lambda: None
        self._latest: Release | None = None
        self._record: PrivateRegretRecord | None = None
        self._seen = 0
        self._step = 1

    @property
    def history(self) -> list[PrivateRegretRecord]:
        """The kept records. Publishable."""
        self.hold()
        return self._history

    def observe(self, release: Release) -> None:
        """Take in the next release. Called by the stream."""
        before = 0 if self._latest is None else self._latest.t
        self._latest, self._record = release, None
        self._seen += 1
        if self.every is None:
            if self._seen % self._step:
                return
        elif release.t // self.every == before // self.every:
            return
        self._history.append(self._now())
        if self.every is None and len(self._history) > KEPT:
            self._step *= 2
            self._history = self._history[1::2]

    def now(self) -> PrivateRegretRecord:
        """The record of the latest release.

        Raises
        ------
        NoRelease
            If there has been no release.
        """
        self.hold()
        return self._now()

    def _now(self) -> PrivateRegretRecord:
        if self._latest is None:
            raise NoRelease("nothing has been released, so no regret may be told yet")
        if self._record is None:
            self._record = PrivateRegretRecord.of(self._latest, confidence=self.confidence, rows=self.rows)
        return self._record

    def state(self) -> dict[str, Any]:
        """Scalars from which `restore` continues."""
        return {"seen": self._seen, "step": self._step, "history": [record.to_json() for record in self._history]}

    def restore(self, state: dict[str, Any], latest: Release | None) -> None:
        """Continue from `state`, with the latest release."""
        self._seen, self._step = state["seen"], state["step"]
        self._history = [PrivateRegretRecord.from_json(line) for line in state["history"]]
        self._latest, self._record = latest, None

    def __repr__(self) -> str:
        return f"PrivateRegret(confidence={self.confidence!r}, every={self.every!r}, rows={self.rows!r})"


def check_rows(rows: object) -> None:
    """Raise `BadParameter` unless it says how rows come about."""
    if rows not in ("fixed", "adaptive"):
        raise BadParameter(f"rows={rows!r} is not known; use 'fixed' or 'adaptive'")


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _pair(values: Any) -> tuple[float, float]:
    low, high = values
    return float(low), float(high)
