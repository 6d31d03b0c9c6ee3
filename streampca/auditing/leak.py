"""The leak check: two neighbors whose released values are equal must look equal to every observer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from streampca.auditing.laws import groups, noiseless
from streampca.auditing.observed import views
from streampca.auditing.runs import Pair
from streampca.linalg.lattice import GramInParts, grid_step
from streampca.linalg.svec import entry_weights, svec_size
from streampca.linalg.types import FloatArray
from streampca.privacy.discrete_gaussian import LatticeGram
from streampca.privacy.outlet import Counts, LatticeSum
from streampca.privacy.randomness import Note
from streampca.processors.base import REWARD_WEIGHT
from streampca.processors.private_fpl import GramWithRewards
from streampca.release.release import Release


def leak(pair: Pair) -> str:
    """Return the first visible difference of two neighbors whose released values are equal; empty if there is none."""
    (outputs, tape, values), (others, other, other_values) = pair.first, pair.second
    if len(outputs) != len(others):
        return f"{len(outputs)} outputs against {len(others)}"
    for i, (one, two) in enumerate(zip(outputs, others, strict=True)):
        if one != two:
            return f"output {i + 1} differs: {_difference(one, two)}"
    last = [[one for one in found if isinstance(one, Release)][-1:] for found in (values, other_values)]
    if pair.depth and all(last):
        one, two = (views(release, pair.depth) for (release,) in last)
        if one != two:
            return f"the last release differs: {_difference(one, two)}"

    # Equal random numbers must give equal noise. The noise of counts depends on which counts there are.
    if [(n.kind, n.exact is None) for n in tape.notes] != [(n.kind, n.exact is None) for n in other.notes]:
        return "other vectors of noise are drawn"
    known: dict[bytes, Note] = {}
    for i, (note, twin) in enumerate(zip(tape.notes, other.notes, strict=True), 1):
        if note.exact is None:
            continue
        if note.std != twin.std:
            return f"vector {i}, {note.kind}: noise_std is {note.std!r} against {twin.std!r}"
        mine, its = note.exact, twin.exact
        alike = not isinstance(mine, Counts) or (
            mine.names == its.names and np.array_equal(mine.counts > 0, its.counts > 0)
        )
        if alike and not np.array_equal(note.noise, twin.noise):
            return f"vector {i}, {note.kind}: equal random numbers give other noise"
        known.setdefault(note.draws.name, note)
    # A vector that hides two values reveals their difference.
    for note in tape.notes:
        before = note if note.exact is None else known[note.draws.name]
        if before is not note and not _alike(groups(before, noiseless(before)), groups(note, noiseless(note))):
            return f"one vector of noise hides two values, {note.kind}"
    return ""


def _difference(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Return the first path at which two runs differ, with the texts around the first difference."""
    path = next(name for name in {**one, **other} if one.get(name) != other.get(name))
    values = one.get(path, "nothing"), other.get(path, "nothing")
    at = next((i for i, (a, b) in enumerate(zip(*values, strict=False)) if a != b), min(map(len, values)))
    near = slice(max(0, at - 30), at + 30)
    return f"{path}, ...{values[0][near]!r} against {values[1][near]!r}"


def _alike(one: Any, two: Any) -> bool:
    """Compare arrays, or tuples and mappings of them."""
    if isinstance(one, (tuple, Mapping)):
        keys = list(one) if isinstance(one, Mapping) else range(len(one))
        return len(one) == len(two) and all(_alike(one[key], two[key]) for key in keys)
    return bool(np.array_equal(one, two))


def low_digits(exact: Any, noise: Any, std: float) -> Any:
    """Release a value with exact numbers far below the noise: a mutant of ``exact.noisy``."""
    value, digits = exact.noisy(noise, std), exact.noisy(np.zeros_like(noise), 1e-300)
    first = value[0] if isinstance(value, tuple) else value
    first += (digits[0] if isinstance(digits, tuple) else digits) * 2.0**-30
    return value


def digits_differ(note: Note, twin: Note, publish: Callable[[Any, Any, float], Any] | None = None) -> bool | None:
    """Test whether the low digits of a release depend on exact values; None for values that are not on a lattice.

    The release of two neighbors must be equal if exact value and noise move by opposite amounts, and it must have no
    digits below the grid of its noise.
    """
    exact, other = note.exact, twin.exact
    noise = np.asarray(note.noise, dtype=np.float64)

    def packed(one: Note) -> FloatArray:
        value = noiseless(one)
        value = np.asarray(value[0] if isinstance(value, tuple) else value)
        return value.sum(axis=0) if value.ndim == 2 else value

    if isinstance(exact, LatticeGram):
        pair = note.noise, note.noise - np.rint((packed(twin) - packed(note)) * 2.0**40).astype(np.int64)
    elif (d := getattr(getattr(exact, "gram", exact), "n_features", None)) is not None:
        # Noise is rounded to the lattice of exact sums, so that the opposite moves cancel without rounding.
        weights, unit = entry_weights(d, packed(note).size - svec_size(d)), 2.0**-40
        rounded = np.rint(noise[: weights.size] * weights / unit) * unit
        moved = packed(twin) - packed(note)
        extra = [np.zeros(0)] * 2
        if isinstance(exact, GramWithRewards):
            rewards = [groups(n, noiseless(n))["rewards"] for n in (note, twin)]
            unit = 2.0**-30 / exact.rewards.scale
            rest = np.rint(noise[-1:] / REWARD_WEIGHT / unit) * unit
            extra = [REWARD_WEIGHT * rest, REWARD_WEIGHT * (rest - rewards[1] + rewards[0])]
        pair = np.append(rounded / weights, extra[0]), np.append((rounded - moved) / weights, extra[1])
    elif isinstance(exact, LatticeSum):
        noise = np.rint(noise.reshape(exact.values.shape) / exact.grid) * exact.grid
        pair = noise, noise - (other.values - exact.values)
    else:
        return None
    value = note.value[0] if isinstance(note.value, tuple) else note.value
    finest = 1.0 if isinstance(exact, GramInParts) else math.inf
    if not isinstance(exact, LatticeGram) and np.remainder(value, min(grid_step(note.std), finest)).any():
        return True
    if publish is None:
        return not _alike(exact.noisy(pair[0], note.std), other.noisy(pair[1], note.std))
    return not _alike(publish(exact, pair[0], note.std), publish(other, pair[1], note.std))
