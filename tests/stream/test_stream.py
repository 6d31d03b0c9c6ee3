from collections import namedtuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import datasets
from river import stream as river_stream

import streampca as sp
from streampca.errors import BadParameterError, BadRowError, HorizonReachedError
from streampca.stream import replay


def fpl(**keywords: object) -> sp.PrivateFPL:
    defaults = {"n_components": 2, "epsilon": 1.0, "delta": 1e-6}
    return sp.PrivateFPL(**(defaults | keywords))  # type: ignore[arg-type]


def some_rows(n: int, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)) * 0.3


@settings(deadline=None, max_examples=25)
@given(
    cuts=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    k=st.integers(1, 12),
    every=st.integers(1, 9),
    log=st.one_of(st.none(), st.integers(1, 7)),
)
def test_block_sizes_change_no_bit(cuts: list[int], k: int, every: int, log: int | None) -> None:
    rows = some_rows(sum(cuts), 12)

    def stream() -> sp.Stream:
        return sp.Stream(fpl(n_components=k, release_every=every), seed=1, regret=sp.RegretLog(every=log))

    one, many = stream(), stream()
    steps = [one.push(row) for row in rows]
    blocks = [many.push_many(part) for part in np.split(rows, np.cumsum(cuts)[:-1])]
    assert [s.reward for s in steps] == [r for block in blocks for r in block.rewards.tolist()]
    ours, theirs = [s.release for s in steps if s.release], [r for block in blocks for r in block.releases]
    assert [r.gram.tobytes() for r in ours] == [r.gram.tobytes() for r in theirs]
    assert one.regret.history == many.regret.history


def test_steps_are_a_sequence() -> None:
    steps = sp.Stream(fpl(release_every=4), seed=0).push_many(some_rows(10))
    assert len(steps) == 10
    assert [s.t for s in steps] == list(range(1, 11))
    assert [s.t for s in steps if s.release] == [4, 8] == [r.t for r in steps.releases]
    assert steps[-1].t == 10
    assert [s.t for s in steps[2:4]] == [3, 4]
    with pytest.raises(IndexError):
        _ = steps[10]


def test_rewards_are_those_of_the_subspace_played_before() -> None:
    stream = sp.Stream(fpl(), row_norm=2.0, seed=0)
    assert np.array_equal(stream.engine.subspace.basis if stream.t else np.eye(4, 2), np.eye(4, 2))
    played = np.eye(4, 2)
    for row in some_rows(50):
        step = stream.push(row)
        assert step.reward == pytest.approx(np.sum((row @ played) ** 2), abs=1e-5)
        played = stream.engine.subspace.basis


def test_every_kind_of_row_goes_in() -> None:
    point = namedtuple("Point", "a b c d")
    frame = pd.DataFrame(some_rows(6), columns=list("abcd"))
    expected = sp.Stream(fpl(), seed=0, features=list("abcd")).push_many(frame.to_numpy()).releases[-1].gram
    ways = [
        lambda s: s.push_many(frame),
        lambda s: s.push_many(frame[["d", "a", "c", "b"]]) if s.features else s.push_many(frame),
        lambda s: s.push_many(frame.to_numpy().tolist()),
        lambda s: [s.push(row) for row in frame.to_dict("records")],
        lambda s: list(s.run(frame.to_dict("records"))),
        lambda s: list(s.run(point(*row) for row in frame.to_numpy())),
        lambda s: list(s.run((row, "target") for row in frame.to_dict("records"))),
        lambda s: list(s.run(iter(frame.to_numpy()))),
    ]
    for way in ways:
        stream = sp.Stream(fpl(), seed=0)
        way(stream)
        assert stream.release is not None
        np.testing.assert_array_equal(stream.release.gram, expected)


def test_river_datasets_and_csv_iterators_go_straight_in(tmp_path) -> None:  # type: ignore[no-untyped-def]
    stream = sp.Stream(fpl(release_every=100), seed=0, row_norm=500.0)
    assert sum(1 for _ in stream.run(datasets.ImageSegments())) == 2310
    assert stream.features is not None
    assert len(stream.features) == 18
    path = tmp_path / "rows.csv"
    pd.DataFrame(some_rows(20), columns=list("abcd")).to_csv(path, index=False)
    again = sp.Stream(fpl(), seed=0)
    list(again.run(river_stream.iter_csv(str(path))))
    assert (again.t, again.features) == (20, ("a", "b", "c", "d"))


def test_sources_bring_features_and_bounds() -> None:
    class Source(sp.RowSource):
        features = ("a", "b", "c", "d")
        bounds = (np.full(4, -10.0), np.full(4, 10.0))

        def blocks(self):  # type: ignore[no-untyped-def]
            yield some_rows(5)
            yield some_rows(3, seed=1)

    stream = sp.Stream(fpl(), seed=0)
    assert [s.t for s in stream.run(Source())] == list(range(1, 9))
    assert stream.features == Source.features
    other = sp.Stream(fpl(), seed=0, bounds=(-10, 10))
    other.push_many(np.concatenate(list(Source().blocks())))
    np.testing.assert_array_equal(stream.release.gram, other.release.gram)  # type: ignore[union-attr]


def unchanged(stream: sp.Stream) -> tuple[object, ...]:
    gram = stream.release.gram.tobytes() if stream.release else None
    return (
        stream.t,
        stream.admission.bad_rows,
        gram,
        stream.features,
        str(replay.state(stream.engine)) if stream.t else None,
    )


@pytest.mark.parametrize("bad", [[0.1, 0.2], [0.1, 0.2, 0.3, np.nan], [0, 0, 0, np.inf], ["x", 0, 0, 0], None, "abcd"])
@pytest.mark.parametrize("before", [0, 5])
def test_a_bad_row_changes_nothing(bad: object, before: int) -> None:
    stream, clean = sp.Stream(fpl(), seed=0), sp.Stream(fpl(), seed=0)
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
    stream = sp.Stream(fpl(horizon=20, release_every=every), seed=0)
    stream.push_many(some_rows(18))
    state = unchanged(stream)
    with pytest.raises(HorizonReachedError, match="horizon of 20 rows leaves room for 2"):
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
        ({"center": "no"}, "center='no': expected True or False"),
        ({"features": "age"}, "features='age': expected a sequence"),
        ({"features": 3}, "features=3: expected a sequence"),
        ({"ledger": "budget.db"}, r"Pass Ledger\(file\).account"),
    ):
        with pytest.raises(BadParameterError, match=message):
            sp.Stream(**({"algorithm": fpl()} | keywords))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["publish_regret", "center"])
def test_switches_are_true_or_false(name: str) -> None:
    for value in ("no", "False", 2, None, 0.5):
        with pytest.raises(BadParameterError, match=f"{name}=.*: expected True or False"):
            fpl(**{name: value})
    assert fpl(**{name: np.False_}) == fpl(**{name: 0}) == fpl()


def test_names_of_features_that_are_no_text() -> None:
    stream = sp.Stream(fpl(), seed=0)
    for row in some_rows(4):
        stream.push(dict(enumerate(row.tolist())))
    plain = sp.Stream(fpl(), seed=0, features=[str(i) for i in range(some_rows(1).shape[1])])
    plain.push_many(some_rows(4))
    assert stream.features == plain.features
    assert np.array_equal(stream.regret.exact_gram(), plain.regret.exact_gram())
    with pytest.raises(BadRowError, match="lacks feature"):
        stream.push({9: 1.0, **dict(enumerate(some_rows(1)[0].tolist()[1:]))})


def test_a_stream_without_regret() -> None:
    stream = sp.Stream(fpl(), regret=None, seed=0)
    assert np.isnan(stream.push(some_rows(1)[0]).reward)
    assert stream.engine.regret_log is None
    with pytest.raises(BadParameterError, match="keeps no regret"):
        _ = stream.regret


def test_the_subspace_before_anything_is_known() -> None:
    with pytest.raises(BadParameterError, match="number of features is not known"):
        _ = sp.Stream(fpl()).engine.subspace
    np.testing.assert_array_equal(sp.Stream(fpl(n_features=3)).engine.subspace.basis, np.eye(3, 2))


def test_centering_reads_the_mean_off_the_same_release() -> None:
    rng = np.random.default_rng(5)
    mean = np.array([3.0, -2.0, 0.5])
    rows = mean + rng.standard_normal((20_000, 3)) * [1.0, 0.4, 0.2]
    algorithm = fpl(n_components=1, n_features=3, horizon=20_000, release_every=20_000)
    stream = sp.Stream(algorithm, row_norm=6.0, center=True, seed=0, features=["a", "b", "c"])
    release = stream.push_many(rows).releases[-1]
    assert release.details["centered"] is True
    assert release.features == ("a", "b", "c")
    assert release.details["count"] == 20_000
    assert release.row_norm == 6.0
    np.testing.assert_allclose(release.details["mean"], mean, atol=0.02)
    inside = rows[np.linalg.norm(rows, axis=1) <= 6.0]
    assert len(inside) > 19_800
    np.testing.assert_allclose(release.gram / 20_000, np.cov(rows.T), atol=0.05)
    assert abs(release.subspace.basis[0, 0]) > 0.99  # not the mean's direction
    uncentered = sp.Stream(algorithm, row_norm=6.0, seed=0).push_many(rows).releases[-1]
    assert abs(uncentered.subspace.basis[1, 0]) > 0.4


def test_centering_before_anything_is_known_and_of_bad_rows() -> None:
    stream = sp.Stream(fpl(n_components=1), row_norm=2.0, center=True, seed=1)
    assert all(step.release.is_centered for step in stream.run([[0.1, 0.2]] * 40) if step.release)
    assert stream.release is not None
    assert stream.release.n_features == 2
    one, many = (sp.Stream(fpl(n_features=4), center=True, seed=1, on_bad_row="zero", regret=None) for _ in range(2))
    rows = some_rows(30)
    rows[7, 2] = np.nan
    last = [one.push(row) for row in rows][-1].release
    np.testing.assert_array_equal(last.gram, many.push_many(rows).releases[-1].gram)  # type: ignore[union-attr]
    assert one.admission.bad_rows == many.admission.bad_rows == 1


def test_finishing_releases_what_is_held() -> None:
    mechanism = sp.GaussianCovariance(n_components=1, epsilon=1.0, delta=1e-6)
    kept = sp.Stream(sp.Tumbling(mechanism, release_every=10, keep_short=True), seed=0)
    assert kept.finish() is None
    kept = sp.Stream(sp.Tumbling(mechanism, release_every=10, keep_short=True), seed=0, features=list("abcd"))
    kept.push_many(some_rows(14))
    last = kept.finish()
    assert last is not None
    assert (last.t, last.features, kept.release) == (14, ("a", "b", "c", "d"), last)
    for stream in (
        sp.Stream(sp.Tumbling(mechanism, release_every=10), seed=0),
        sp.Stream(fpl(release_every=10), seed=0),
    ):
        for row in some_rows(14):
            stream.push(row)
        assert stream.finish() is None
        assert stream.t == 14


def test_a_bad_row_in_a_source_does_not_lose_the_rows_before_it() -> None:
    class Source(sp.RowSource):
        features, bounds = ("a", "b"), None

        def blocks(self):  # type: ignore[no-untyped-def]
            yield np.array([[0.1, 0.2], [0.3, 0.4], [np.nan, 0.0], [0.5, 0.5]])

    stream = sp.Stream(fpl(n_components=1), seed=0)
    with pytest.raises(BadRowError, match="row 3: feature 'a'"):
        list(stream.run(Source()))
    assert stream.t == 2


def test_an_empty_block_changes_nothing() -> None:
    stream = sp.Stream(fpl(), seed=0)
    assert len(stream.push_many([])) == 0
    assert stream.t == 0


def test_bad_rows_may_be_absorbed_as_zero_rows() -> None:
    rows = some_rows(8)
    spoiled, zeroed = rows.tolist(), rows.copy()
    spoiled[2][1], spoiled[5] = "n/a", [1.0]
    zeroed[[2, 5]] = 0.0
    stream, clean = (sp.Stream(fpl(n_features=4), seed=0, on_bad_row="zero") for _ in range(2))
    stream.push_many(spoiled)
    clean.push_many(zeroed)
    assert (stream.t, stream.admission.bad_rows) == (8, 2)
    np.testing.assert_array_equal(stream.release.gram, clean.release.gram)  # type: ignore[union-attr]


def test_huge_rows_are_scaled_in_every_form() -> None:
    stream = sp.Stream(fpl(n_components=1), seed=0)
    for _ in range(3):
        stream.push([1e200, 1e308])
        stream.push(np.array([1e-320, -1e308]))
    assert stream.regret.exact_gram().trace() == pytest.approx(6.0, abs=1e-4)
