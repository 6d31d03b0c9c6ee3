from functools import partial

import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadRowError, HorizonReachedError, UsageError
from streampca.stream import replay

fpl = partial(sp.PrivateFPL, n_components=2, epsilon=1.0, release_every=1, center=False)


def some_rows(n: int, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)) * 0.3


def test_steps_are_a_sequence() -> None:
    """That they are those of single rows is held by `test_blocks_and_single_rows_give_the_same_bits`."""
    stream = sp.Stream(fpl(release_every=4), row_norm=1.0)
    stream.push_many(some_rows(3))
    steps = stream.push_many(some_rows(8))
    assert [s.t for s in steps if s.release] == [r.t for r in steps.releases] == [4, 8]
    assert [steps[-1].t, steps[-2:][0].t, len(steps)] == [11, 10, 8]
    with pytest.raises(IndexError):
        _ = steps[len(steps)]


def test_rewards_are_those_of_the_subspace_played_before() -> None:
    with pytest.raises(UsageError, match="number of features is not known"):
        _ = sp.Stream(fpl(), row_norm=1.0).engine.subspace()
    stream = sp.Stream(fpl(), features=4, row_norm=2.0, seed=0)
    played = stream.engine.subspace().basis
    assert np.array_equal(played, np.eye(4, 2))
    for row in some_rows(50):
        step = stream.push(row)
        assert step.reward == pytest.approx(np.sum((row @ played) ** 2), abs=1e-5)
        played = stream.engine.subspace().basis


def unchanged(stream: sp.Stream) -> tuple[object, ...]:
    gram = stream.release.gram.tobytes() if stream.release else None
    state = str(replay.saved(stream.engine)["state"]) if stream.t else None
    return stream.t, stream.admission.bad_rows, gram, stream.features, state


@pytest.mark.parametrize("bad", [[0.1, 0.2], np.zeros((4, 1)), None, "abcd"])
@pytest.mark.parametrize("before", [0, 5])
def test_a_row_of_another_shape_changes_nothing(bad: object, before: int) -> None:
    stream, clean = sp.Stream(fpl(), row_norm=1.0, seed=0), sp.Stream(fpl(), row_norm=1.0, seed=0)
    stream.push_many(some_rows(before))
    state = unchanged(stream)
    if before or not (isinstance(bad, list) and len(bad) == 2):
        with pytest.raises(BadRowError, match=f"row {before + 1}"):
            stream.push(bad)
        with pytest.raises(BadRowError):
            stream.push_many([some_rows(1)[0], bad])
        assert unchanged(stream) == state
    stream.push_many(some_rows(6, seed=9))
    clean.push_many(some_rows(before))
    clean.push_many(some_rows(6, seed=9))
    assert unchanged(stream) == unchanged(clean)


@pytest.mark.parametrize("every", [1, 3, 7])
def test_past_the_horizon_nothing_changes(every: int) -> None:
    stream = sp.Stream(fpl(horizon=20, release_every=every), row_norm=1.0, seed=0)
    stream.push_many(some_rows(18))
    state = unchanged(stream)
    with pytest.raises(HorizonReachedError, match="noise was set for 20 rows, of which 2 are left"):
        stream.push_many(some_rows(3))
    assert unchanged(stream) == state
    assert stream.push_many(some_rows(2))[-1].release is not None  # the last, short block is released too
    state = unchanged(stream)
    for push in (lambda: stream.push(some_rows(1)[0]), lambda: list(stream.run(some_rows(1)))):
        with pytest.raises(HorizonReachedError):
            push()
    assert unchanged(stream) == state


def test_settings_outside_their_domain() -> None:
    for keywords, message in (
        ({"algorithm": 3}, "expected an algorithm"),
        ({"regret": "private"}, "regret='private'"),
        ({"seed": 1, "key": bytes(32)}, "not both"),
        ({"row_norm": -1}, "row_norm=-1"),
        ({"key": b"x"}, "32 bytes"),
        ({"regret": True}, "regret=True"),
        ({"private_regret": True}, "private_regret=True"),
        ({"features": "age"}, "features='age': expected a sequence"),
        ({"features": 0}, "features=0: expected an integer >= 1"),
        ({"account": "budget.db"}, r"Pass Ledger\(file\).account"),
    ):
        with pytest.raises(UsageError, match=message):
            sp.Stream(**({"algorithm": fpl(), "row_norm": 1.0} | keywords))  # type: ignore[arg-type]


def test_names_of_features_that_are_no_text() -> None:
    stream = sp.Stream(fpl(), row_norm=1.0, seed=0, features=range(some_rows(1).shape[1]))
    for row in some_rows(4):
        stream.push(dict(enumerate(row.tolist())))
    plain = sp.Stream(fpl(), row_norm=1.0, seed=0, features=[str(i) for i in range(some_rows(1).shape[1])])
    plain.push_many(some_rows(4))
    assert stream.features == plain.features
    assert np.array_equal(stream.regret.exact_gram(), plain.regret.exact_gram())
    stream.push({9: 1.0, **dict(enumerate(some_rows(1)[0].tolist()[1:]))})
    assert stream.admission.zero_rows_by_reason == {"missing value": 1}


def test_a_stream_without_regret() -> None:
    stream = sp.Stream(fpl(), row_norm=1.0, regret=None, seed=0)
    assert np.isnan(stream.push(some_rows(1)[0]).reward)
    assert stream.engine.regret_log is None
    with pytest.raises(UsageError, match="keeps no regret"):
        _ = stream.regret
