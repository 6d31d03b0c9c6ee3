"""Copies of a running stream: the past stays, the noise to come is the copy's own."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from streampca.integrations._continued import ContinuedRandomness, forked, parts_of
from streampca.integrations._session import Session
from streampca.linalg.lattice import onto_ball
from streampca.linalg.svec import svec
from streampca.prefix_sums.base import PrefixSum
from streampca.prefix_sums.blt import AnytimeBLT, GeometricBLT
from streampca.prefix_sums.window import StationaryBLT
from streampca.privacy.budget import Budget
from streampca.privacy.randomness import Randomness
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.private_oja import PrivateOja
from streampca.processors.sliding_window import SlidingWindowPCA

SIZE = 6
MECHANISMS: list[PrefixSum] = [
    AnytimeBLT(mu=0.3, sensitivity=1.0),
    GeometricBLT(horizon=40, mu=0.3, sensitivity=1.0),
    StationaryBLT(window=16, mu=0.3, sensitivity=1.0),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("forks", [(5,), (8,), (3, 6, 7, 20)])
def test_a_copy_has_the_noise_of_the_mechanism(mechanism: PrefixSum, forks: tuple[int, ...]) -> None:
    """The noise is B z with the z of releases made before the fork, and fresh ones after it: exactly."""
    randomness = Randomness.from_seed(1)
    running = mechanism.start(SIZE, randomness.stream("x"))
    draws, outputs = [], []
    for n in range(1, 31):
        outputs.append(running.advance().copy())
        # Each draw as the key of its own time makes it.
        draws.append(randomness.stream("x").normal(n, SIZE))
        if n in forks:
            state = running.state()
            randomness = forked(parts_of(randomness), n + 1)
            running = mechanism.start(SIZE, randomness.stream("x"))
            running.restore(state)
    assert np.allclose(mechanism.decoder(30) @ np.array(draws), outputs, rtol=1e-9, atol=1e-9)


def test_keys_change_where_they_should() -> None:
    first = Randomness.from_seed(1)
    second = forked(parts_of(first), 6)
    third = forked(parts_of(second), 11)
    assert [place for place, _ in third.parts] == [0, 6, 11]
    for index in range(14):
        one, two, three = (r.stream("x").normal(index, 3).tolist() for r in (first, second, third))
        assert (one == two) == (index < 6)
        assert (two == three) == (index < 11)
        assert (one == three) == (index < 6)
    # What is older than the chunk in progress is in the noise's state, and its key is forgotten.
    assert len(forked(parts_of(third), 1000).parts) == 2
    assert parts_of(first)[0][1] not in dict(forked(parts_of(third), 1000).parts).values()
    assert len(forked(parts_of(first), 0).parts) == 1
    assert isinstance(third.stream("x").word(), int)


PROCESSORS: list[dict[str, Any]] = [
    {"kind": PrivateFPL},
    {"kind": PrivateFPL, "release_every": 3},
    {"kind": PrivateFPL, "horizon": 60},
    {"kind": SlidingWindowPCA, "window": 20},
    {"kind": PrivateOja, "batch_size": 5},
]


def session(options: dict[str, Any], seed: int | None) -> Session:
    made = {"n_components": 2, "epsilon": 1.0, "delta": 1e-6} | options
    return Session(made.pop("kind")(**made), n_features=4, seed=seed)


def what_differs(options: dict[str, Any], seed: int | None, fed: int) -> float:
    """How far two copies' releases differ, if they are fed the same rows."""
    rows = onto_ball(np.random.default_rng(0).normal(size=(60, 4)) / 4.0)
    first = session(options, seed)
    first.stream.push_many(rows[:fed])
    saved = pickle.dumps(first)
    one, two, three = pickle.loads(saved), pickle.loads(saved), copy.deepcopy(first)
    for copied in (one, two, three):
        assert copied.stream.t == fed
        assert (copied.stream.release is None) == (first.stream.release is None)
        if first.stream.release is not None:
            assert copied.stream.release.to_json() == first.stream.release.to_json()
    apart = [np.inf] * 4
    for i in range(fed, 60):
        new = [s.stream.push(rows[i]).release for s in (first, one, two, three)]
        assert len({release is None for release in new}) == 1
        if new[0] is not None:
            values = [np.asarray(r.gram if r.has_gram else r.subspace.basis) for r in new]
            gaps = [float(np.abs(values[a] - values[b]).max()) for a, b in ((0, 1), (1, 2), (2, 3), (0, 3))]
            apart = [min(pair) for pair in zip(apart, gaps, strict=True)]
    return min(apart)


@pytest.mark.parametrize(
    "options", PROCESSORS, ids=lambda o: "-".join(str(getattr(v, "__name__", v)) for v in o.values())
)
@pytest.mark.parametrize("fed", [0, 1, 13, 24])
def test_no_two_copies_share_noise(options: dict[str, Any], fed: int) -> None:
    """With one key they would agree to the bit, as seeded ones do, and other rows would show in the difference."""
    assert what_differs(options, None, fed) > 1e-6
    assert what_differs(options, 7, fed) == 0.0


def test_the_session_forks_after_the_last_release() -> None:
    """Rows of zeros: what is released is the noise, and it must be B z across copies, too."""
    first = Session(PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=2), n_features=3)
    draws, outputs = [], []
    for n in range(1, 21):
        draws.append(first.stream._randomness.stream("PrivateFPL", "blt", 0).normal(len(draws) + 1, 6))
        first.stream.push_many(np.zeros((2, 3)))
        release = first.stream.release
        assert release is not None
        outputs.append(svec(release.gram))
        if n in (3, 11):
            first.stream.push(np.zeros(3))
            first = copy.deepcopy(first)
            first.stream.push(np.zeros(3))
            draws.append(first.stream._randomness.stream("PrivateFPL", "blt", 0).normal(len(draws) + 1, 6))
            assert first.stream.release is not None
            outputs.append(svec(first.stream.release.gram))
    mu = Budget(1.0, 1e-6).mu
    assert np.allclose(AnytimeBLT(mu=mu).decoder(len(draws)) @ np.array(draws), outputs, atol=1e-4)


def test_a_copy_of_a_copy() -> None:
    first = session({"kind": PrivateFPL}, None)
    for row in np.eye(4)[[0, 1, 2, 3, 0]]:
        first.stream.push(row)
        first = pickle.loads(pickle.dumps(first))
    assert first.stream.t == 5
    assert isinstance(first.stream._randomness, ContinuedRandomness)
    gram = first.stream.processor.curator_gram()
    assert gram is not None
    assert np.allclose(np.sort(gram)[-4:], [1.0, 1.0, 1.0, 2.0])


def test_bad_rows_are_still_counted() -> None:
    first = Session(PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6), n_features=2, on_bad_row="zero")
    first.stream.push([np.nan, 1.0])
    assert copy.deepcopy(first).stream.bad_rows == 1
