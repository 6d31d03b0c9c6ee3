"""Any mechanism, lifted into the stream: one release for each block of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Processor, check_count
from streampca.release import Release


class Tumbling(Processor):
    """Release each block of rows once, by a mechanism; blocks do not overlap.

    A release speaks of its own block only. The rows of the block in progress
    are held until it is released and then forgotten.

    Parameters
    ----------
    mechanism : what makes the releases, e.g. `GaussianCovariance`.
    every : rows in a block.
    horizon : rows in the stream, if that is known; None for an endless one.
    keep_short : whether a shorter last block is released too, at the horizon
        or by `finish`. Public, like the number of rows.
    n_features : number of features; taken from the first row if left out.
    seed : for tests and scenarios; see `Stream`.

    Raises
    ------
    BadParameter
        If a parameter is outside its domain.

    Notes
    -----
    *Guarantee.* All releases together have that of one release (parallel
    composition, McSherry 2009): under zero-out and replace adjacency the
    positions of rows are public, so a row is in one block whatever its value.
    This fails under true addition and removal, which shift the rows that follow.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        *,
        every: int,
        horizon: int | None = None,
        keep_short: bool = False,
        n_features: int | None = None,
        seed: int | None = None,
    ) -> None:
        if not isinstance(mechanism, Mechanism):
            raise BadParameter(f"mechanism={mechanism!r} is not a mechanism; pass e.g. GaussianCovariance(...)")
        check_count("every", every)
        check_count("horizon", horizon, optional=True)
        check_count("n_features", n_features, optional=True)
        if mechanism.guarantee.adjacency not in ("zero-out", "replace", "none"):
            raise BadParameter(
                f"mechanism={mechanism!r} is private under {mechanism.guarantee.adjacency!r} adjacency, where a row "
                "moves those after it to other blocks; calibrate it for 'zero-out' or 'replace'"
            )
        self.mechanism = mechanism
        self.every = every
        self.horizon = horizon
        self.keep_short = bool(keep_short)
        self.n_features = n_features if n_features is not None else mechanism.n_features
        self.n_components = _played_components(mechanism)
        self.seed = seed
        self._held: list[FloatArray] = []
        self._held_rows = 0
        self._finished = False

    @property
    def guarantee(self) -> Guarantee:
        """That of one release, for all releases together."""
        one = self.mechanism.guarantee
        if not one.is_private:
            return one
        return replace(
            one,
            scope=f"all releases of the stream, one per block of {self.every} rows",
            theorem=f"{one.theorem}; parallel composition over disjoint blocks",
        )

    @property
    def rows_left(self) -> int | None:
        """How many more rows may be absorbed; None if endless."""
        if self._finished:
            return 0
        return None if self.horizon is None else self.horizon - self.t

    @property
    def rows_until_release(self) -> int:
        """How many rows complete the block; 0 once the horizon is reached."""
        due, left = self.every - self._held_rows, self.rows_left
        return due if left is None else min(due, left)

    def _start(self, n_features: int, randomness: Randomness) -> None:
        self.mechanism.check(n_features)
        self._randomness = randomness

    def _absorb(self, rows: FloatArray) -> Release | None:
        self._held.append(rows.copy())
        self._held_rows += rows.shape[0]
        if self._held_rows == self.every or (self.keep_short and self.t == self.horizon):
            return self._release_block()
        if self.t == self.horizon:
            self._held, self._held_rows = [], 0
        return None

    def _release_block(self) -> Release:
        rows = np.concatenate(self._held)
        self._held, self._held_rows = [], 0
        release = self.mechanism.release(rows, self._randomness, t=self.t)
        promised = self.guarantee
        release.guarantee = promised.seeded() if self._randomness.is_seeded else promised
        return release

    def finish(self) -> Release | None:
        """End the stream: release the last short block if ``keep_short``, else forget it.

        When to end must not depend on the rows. No rows are taken afterwards.
        """
        if self._finished:
            return None
        release = self._release_block() if self.keep_short and self._held_rows else None
        self._held, self._held_rows, self._finished = [], 0, True
        return release

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        held = np.concatenate(self._held) if self._held else np.zeros((0, self.n_features or 0))
        return {"t": self.t, "held": held, "finished": self._finished}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.t = int(state["t"])
        held = np.array(state["held"], dtype=np.float64)
        self._held, self._held_rows = ([held] if len(held) else []), len(held)
        self._finished = bool(state["finished"])


def _played_components(mechanism: Mechanism) -> int:
    """Number of components to play and score with before a mechanism that finds it has found it."""
    return mechanism.n_components or int(getattr(mechanism, "max_components", None) or 1)
