"""A row of the lane has the bits of the general path: releases, chain, secret state, counts, rewards."""

from typing import Any

import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadRowError, HorizonReachedError
from streampca.stream import lane as lanes

pytestmark = [
    pytest.mark.usefixtures("compiled_kernels"),
    pytest.mark.filterwarnings("ignore:too few rows"),  # bits are compared, not results
]


def rows_of(n, d, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) / 1.01


def stream(lane=True, d=5, k=2, solver="tracking", center=False, horizon=300, published=False, **keywords):
    options = {"horizon": horizon, "solver": solver, "center": center, "publish_regret": published}
    algorithm = sp.PrivateFPL(n_components=k, epsilon=1.0, release_every=1, **options)
    made = sp.Stream(algorithm, seed=7, **keywords if "bounds" in keywords else {"row_norm": 1.0} | keywords)
    if not lane:
        made.engine._has_lanes = False
    return made


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value.tobytes() if isinstance(value, np.ndarray) else value


def state(made: sp.Stream) -> Any:
    now = made.engine.now
    regret = None if now.regret is None else (now.regret.t, now.regret.reward, now.regret.next)
    scoring = None if now.scoring is None else tuple(part + 0.0 for part in now.scoring if part is not None)  # no -0.0
    return plain((now.t, now.processor.snapshot(), now.counts, now.due, now.entries, regret, scoring))


def same(one: sp.Step, other: sp.Step) -> None:
    assert plain(one.release.packed) == plain(other.release.packed)
    assert plain(np.asarray(one.release.span)) == plain(np.asarray(other.release.span))
    assert one.release.to_json() == other.release.to_json()
    assert one.reward == other.reward or np.isnan([one.reward, other.reward]).all()


@pytest.mark.parametrize(
    ("solver", "center"),
    [("tracking", False), ("tracking", True), ("exact", False), ("exact", True), ("smoothed", False)],
)
@pytest.mark.parametrize(
    ("d", "k", "keywords"),
    [
        (1, 1, {}), (5, 4, {}), (20, 5, {}), (64, 5, {}), (5, 2, {"regret": None}), (5, 2, {"row_norm": 2.5}),
        (5, 2, {"row_norm": 3.0}), (5, 2, {"bounds": (-1.0, 1.0)}), (5, 2, {"regret": sp.RegretLog(every=9)}),
    ],
)  # fmt: skip
def test_every_bit_is_that_of_the_general_path(d, k, keywords, solver, center):
    """Also of long rows, of lists, and where a reader asks for the state between two rows."""
    options = {"d": d, "k": k, "solver": solver, "center": center, "horizon": 130, **keywords}
    one, other = stream(**options), stream(lane=False, **options)
    rows, in_lane = rows_of(130, d), 0
    rows[50] *= 3.0
    for i, row in enumerate(rows):
        given = row.tolist() if i % 37 == 36 else row
        same(one.push(given), other.push(given))
        in_lane += one.engine.lane is not None
        if i % 11 == 0:
            assert state(one) == state(other)
    assert in_lane > 60
    assert state(one) == state(other)
    if options.get("regret", one) is not None:
        assert one.regret.now() == other.regret.now()


def test_kinds_of_pushes_mix():
    rows, one, other = rows_of(300, 5), stream(), stream(lane=False)
    at, rng = 0, np.random.default_rng(1)
    while at < 290:
        count = int(rng.integers(1, 8))
        if rng.integers(2):
            for row in rows[at : at + count]:
                same(one.push(row), other.push(row))
        else:
            steps, others = one.push_many(rows[at : at + count]), other.push_many(rows[at : at + count])
            assert [r.to_json() for r in steps.releases] == [r.to_json() for r in others.releases]
        at += count
        assert one.t == other.t == at
        assert state(one) == state(other)


def test_rows_that_may_not_be_admitted_change_nothing():
    one = stream()
    for row in rows_of(20, 5):
        one.push(row)
    before, lane = state(one), one.engine.lane
    assert lane is not None
    for bad in (np.zeros(4), "abcde", {"a": 1.0}):
        with pytest.raises(BadRowError):
            one.push(bad)
        assert state(one) == before
    assert one.engine.lane is lane


@pytest.mark.parametrize("place", ["random", "link"])
def test_an_error_in_the_middle_of_a_row_changes_nothing(place, monkeypatch):
    one, other = stream(), stream(lane=False)
    rows = rows_of(60, 5)
    for row in rows[:20]:
        same(one.push(row), other.push(row))
    source = one.engine.lane.source
    if place == "random":
        source.is_seeded = False

    def broken(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(source if place == "random" else type(source), place, broken)
        with pytest.raises(KeyboardInterrupt):
            one.push(rows[20])
    source.is_seeded = True
    assert one.t == 20
    for row in rows[20:]:
        same(one.push(row), other.push(row))


def test_released_arrays_are_read_only_and_hold_no_secret_memory():
    one = stream(center=True, row_norm=2.0)
    for row in rows_of(30, 5):
        release = one.push(row).release
    lane = one.engine.lane
    secret = {id(lane.state.arena), id(lane.state.arena.base)} - {id(None)}
    for array in (release.packed, release.span, release.subspace.basis, release.eigenvalues):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
        while array is not None:
            assert id(array) not in secret
            array = array.base if isinstance(array, np.ndarray) else None


def test_streams_that_record_rows_have_no_lane():
    one = stream(published=True, private_regret=sp.PrivateRegret())
    for row in rows_of(20, 5):
        one.push(row)
    assert one.engine.lane is None


def test_a_lane_has_records_ends_before_keys_and_at_the_horizon(monkeypatch):
    monkeypatch.setattr("streampca.privacy.outlet.EPOCH_BITS", 4)
    monkeypatch.setattr(lanes, "EPOCH_BITS", 4)
    one, other = stream(horizon=60), stream(lane=False, horizon=60)
    for row in rows_of(60, 5):
        same(one.push(row), other.push(row))
        assert state(one) == state(other)
    assert one.engine.lane is not None
    with pytest.raises(HorizonReachedError):  # nothing follows the horizon
        one.push(row)
    assert state(one) == state(other)
    assert [record.t for record in one.regret.history] == [1, 2, 4, 8, 16, 32]


def test_streams_of_one_algorithm_do_not_share_the_scales_of_their_noise():
    """One stream is a chunk of 64 scales ahead of the other, so that each replaces the chunk in which the other is."""
    rows, algorithm = rows_of(200, 5), stream().algorithm
    expected = [step.release.to_json() for step in map(stream(lane=False).push, rows)]
    ahead, behind = (sp.Stream(algorithm, row_norm=1.0, seed=7) for _ in range(2))
    found = [ahead.push(row).release.to_json() for row in rows[:70]]
    for t in range(130):
        assert behind.push(rows[t]).release.to_json() == expected[t]
        found.append(ahead.push(rows[70 + t]).release.to_json())
    assert found == expected


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("solver", ["tracking", "exact"])
@pytest.mark.parametrize("keywords", [{}, {"bounds": (-1.0, 1.0)}, {"row_norm": 2.5}])
def test_a_block_with_bad_and_long_rows_has_the_bits_and_counts_of_the_general_path(center, solver, keywords):
    """A bad row of a centered stream is absent: it has no constant, also in the lane."""
    given = {"features": list("abcde"), "center": center, "solver": solver, **keywords}
    rows = rows_of(200, 5).tolist()
    rows[90], rows[91], rows[95], rows[99] = ["x", 0, 0, 0, 0], [None] * 5, [float("inf")] * 5, [3.0] * 5
    one, other = (stream(lane, **given) for lane in (True, False))
    steps, others = one.push_many(rows), other.push_many(rows)
    assert one.engine.lane is not None
    assert [r.to_json() for r in steps.releases] == [r.to_json() for r in others.releases]
    np.testing.assert_array_equal(steps.rewards, others.rewards)
    assert np.flatnonzero(steps.rewards[90:100] == 0.0).tolist() == [0, 1, 5]  # the row outside its bounds is present
    assert state(one) == state(other)
    assert one.admission == other.admission
