"""A resumed run is the run: same releases, same regret, whatever the algorithm and wherever it stopped."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import STREAMS, rows
from hypothesis import given, settings, strategies as st
from runs import fpl, texts

import streampca as sp
from streampca.errors import BadParameterError, HorizonReachedError, StoreLockedError, UsageError
from streampca.store.config import storable
from streampca.store.reading import verify

ROWS = rows()
N, D = 220, ROWS.shape[1]
#: Where every row or two has a release, half as many rows have as many releases as are needed.
N_OFTEN = 110
#: People need other calls (`test_people.py`). One case needs more rows.
CASES = [name for name in STREAMS if "replace" not in name and "people" not in name and name != "dp-pca-deflation"]


def fresh(case: str, **more: Any) -> sp.Stream:
    make, options = STREAMS[case]
    return sp.Stream(make(), **options, **more)


def rows_for(stream: sp.Stream) -> np.ndarray:
    return ROWS[: N_OFTEN if getattr(stream.algorithm, "release_every", N) in (1, 2) else N]


def test_every_public_algorithm_is_tried() -> None:
    names = [*sp.__all__, *sp.papers.__all__]
    processors = {name for name in names if (kind := storable(name)) is not None and issubclass(kind, sp.Algorithm)}
    assert {type(STREAMS[name][0]()).__name__ for name in CASES} == processors


@pytest.mark.parametrize(("case", "commit_every"), [(name, (1, 13, "1h")[i % 3]) for i, name in enumerate(CASES)])
def test_a_run_stopped_again_and_again_gives_the_same_bits(case: str, commit_every: int | str) -> None:
    alone = fresh(case, seed=3)
    rows = rows_for(alone)
    expected = texts(alone.push_many(rows).releases)
    store = sp.Store(":memory:", commit_every=commit_every)
    stream, got = fresh(case, seed=3, store=store), []
    random = np.random.default_rng(len(case))
    cuts = random.integers(0, len(rows), 3).tolist() if commit_every != 1 else [1, 100, 101]
    for end in [*sorted(cuts), len(rows)]:
        step = 7 if commit_every == 13 else 1000
        while stream.t < end:
            got += stream.push_many(rows[stream.t : min(end, stream.t + step)]).releases
        stream = sp.Stream.resume(store)
        assert stream.t == end
        if stream.release is not None:
            assert stream.release.to_json() == got[-1].to_json()
    assert texts(got) == texts(store.releases()) == expected
    assert (stream.guarantee, stream.features) == (alone.guarantee, alone.features)
    for name, log in (("regret", "regret_log"), ("private_regret", "private_log")):
        if getattr(alone.engine, log) is not None:
            one, other = getattr(stream, name), getattr(alone, name)
            # As text: the share captured is nan, which equals nothing, while all rows are the same.
            assert repr((one.now(), one.history)) == repr((other.now(), other.history))


@pytest.mark.parametrize("case", [*CASES[::2], *(pytest.param(name, marks=pytest.mark.ci) for name in CASES[1::2])])
def test_noise_from_the_system_is_played_again_from_the_fresh_bytes(case: str, tmp_path: Path) -> None:
    """Not seeded: what was released before a crash is made again."""
    path = tmp_path / "run.db"
    store = sp.Store(path, commit_every="1h")
    stream = fresh(case, store=store)
    *_, end = cuts = np.array([15, 17, 22]) * len(rows_for(stream)) // 22
    read = texts(stream.push_many(ROWS[: cuts[0]]).releases)
    stream.push_many(ROWS[cuts[0] : cuts[1]])  # not read, and not durable
    store._let_go()  # as a crash does
    with sp.Store(path, commit_every="1h") as store:
        resumed = sp.Stream.resume(store)
        assert resumed.t == (cuts[0] if read else 0)
        read += texts(resumed.push_many(ROWS[resumed.t : end]).releases)
        assert texts(store.releases()) == read
        store.flush()
        verify(path)  # replays all rows


def test_the_end_of_a_stream_is_played_again(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    mechanism = sp.GaussianCovariance(n_components=2, epsilon=1.0, center=False)
    store = sp.Store(path, commit_every="1h")
    stream = sp.Stream(
        sp.Tumbling(mechanism, release_every=40, horizon=400, keep_short=True), row_norm=1.0, store=store
    )
    stream.push_many(ROWS[:90])
    last = stream.finish()
    assert last is not None
    assert stream.finish() is None
    store._let_go()  # as a crash does
    for _ in range(2):  # from the log, then from a snapshot
        with sp.Store(path) as store:
            resumed = sp.Stream.resume(store)
            assert resumed.t == 90
            assert resumed.release is not None
            assert resumed.release.to_json() == last.to_json()
            with pytest.raises(HorizonReachedError):
                resumed.push(ROWS[0])
            assert [release.t for release in store.releases()] == [40, 80, 90]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.one_of(st.integers(1, 60), st.just("resume"), st.just("push"), st.just("flush")), max_size=14),
    st.sampled_from([1, 2, 29, "1ms", "1h"]),
)
def test_any_order_of_pushes_commits_and_resumes(acts: list[int | str], commit_every: int | str) -> None:
    algorithm = fpl(release_every=6)
    whole = sp.Stream(algorithm, row_norm=1.0, seed=1, features=D)
    store = sp.Store(":memory:", commit_every=commit_every, snapshot_every="1ms" if commit_every == 2 else "1h")
    stream = sp.Stream(algorithm, row_norm=1.0, seed=1, features=D, store=store)
    rows = ROWS.copy()
    rows[5::17, 2] = np.nan
    for act in acts:
        t = stream.t
        if act == "resume":
            stream = sp.Stream.resume(store)
            assert stream.t == t  # resuming the same store object commits what waited
        elif act == "flush":
            store.flush()
            assert store.durable == t
        elif act == "push":
            assert stream.push(rows[t]).t == t + 1
        else:
            stream.push_many(rows[t : t + int(act)])
    releases = whole.push_many(rows[: stream.t]).releases
    resumed = sp.Stream.resume(store)
    assert texts(store.releases()) == texts(releases)
    assert resumed.admission.bad_rows == whole.admission.bad_rows


def test_names_bounds_and_the_first_row_come_back() -> None:
    store = sp.Store(":memory:", commit_every=1)
    bounds = {"b": (0.0, 2.0), "a": (-1.0, 1.0)}
    stream = sp.Stream(fpl(n_components=1), bounds=bounds, store=store, features=["a", "b"])
    early = sp.Stream.resume(store)  # before any row
    assert early.t == 0
    early.push({"a": 0.5, "b": 1.5})
    with pytest.raises(StoreLockedError):
        stream.push({"a": 0.5, "b": 1.5})
    later = sp.Stream.resume(store)
    assert later.features == ("a", "b")
    assert later.push({"b": 1.0, "a": 0.0}).t == 2
    later.push({"c": 1.0, "a": 0.0})
    assert later.admission.zero_rows_by_reason == {"missing value": 1}
    for sides in ([(0.0, 2.0), (-1.0, 3.0)], ([0.0, -1.0], [2.0, 3.0])):
        store = sp.Store(":memory:", commit_every=1)
        sp.Stream(fpl(n_components=1), bounds=sides, store=store, features=2).push([1.0, 0.0])
        admission = sp.Stream.resume(store).engine.now.admission
        assert np.array_equal([admission.middle, admission.factor], [[1.0, 1.0], [1.0, 0.5]])


def test_a_store_holds_one_run_and_what_cannot_be_kept_is_refused_at_once() -> None:
    store = sp.Store(":memory:")
    stream = sp.Stream(fpl(), row_norm=1.0, seed=987654321, store=store)
    with pytest.raises(UsageError, match="Continue it"):
        sp.Stream(fpl(), row_norm=1.0, store=store)
    stream.push_many(ROWS[:10])
    assert sp.Stream.resume(store).guarantee.caveat == stream.guarantee.caveat != ""  # says that there is a seed
    assert "987654321" not in "".join(store._open_database().db.iterdump())

    class Own(sp.PrivateFPL):
        pass

    with pytest.raises(UsageError, match="Own cannot be kept"):
        sp.Stream(Own(n_components=1, epsilon=1.0, delta=1e-6), row_norm=1.0, store=sp.Store(":memory:"))
    with pytest.raises(UsageError, match="holds no run"):
        sp.Stream.resume(sp.Store(":memory:"))
    with pytest.raises(BadParameterError, match="store="):
        sp.Stream(fpl(), row_norm=1.0, store="run.db")  # type: ignore[arg-type]
    for wrong in (0, True, 2.5, "soon", "0ms", "5rows", None):
        with pytest.raises(BadParameterError, match="commit_every"):
            sp.Store(":memory:", commit_every=wrong)  # type: ignore[arg-type]


def test_releases_read_in_another_thread_commit_no_half_of_a_block() -> None:
    rows = np.tile(ROWS, (12, 1))
    expected = texts(sp.Stream(fpl(release_every=3), row_norm=1.0, seed=3).push_many(rows).releases)
    store = sp.Store(":memory:", commit_every="1h", snapshot_every="1ms")
    stream = sp.Stream(fpl(release_every=3), row_norm=1.0, seed=3, store=store)

    def reads() -> int:
        found = 0
        while stream.t < len(rows):
            found += stream.release is not None
        return found

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(reads)
        for start in range(0, len(rows), 40):
            stream.push_many(rows[start : start + 40])
        assert reader.result()
    resumed = sp.Stream.resume(store)
    assert resumed.t == resumed.regret.now().t == len(rows)
    assert texts(store.releases()) == expected


def test_a_path_is_no_store():
    with pytest.raises(sp.errors.BadParameterError, match=r"store='run.db': expected a store. Pass Store\(path\)"):
        sp.Stream.resume("run.db")
