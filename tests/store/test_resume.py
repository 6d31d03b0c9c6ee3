"""A resumed run is the run: same releases, same regret, whatever the algorithm and wherever it stopped."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streampca as sp
from streampca.errors import (
    BadParameterError,
    BadRowError,
    BudgetExhaustedError,
    HorizonReachedError,
    StoreCorruptError,
    StoreLockedError,
)
from streampca.privacy.budget import Budget
from streampca.processors.base import Algorithm
from streampca.store.config import storable
from streampca.store.ledger import Ledger
from streampca.store.reading import Verification
from streampca.store.store import Store

D, K, N = 5, 2, 330
BUDGET: dict[str, Any] = {"n_components": K, "epsilon": 1.0, "delta": 1e-6}
Make = Callable[[], Algorithm]

CASES: dict[str, tuple[Make, dict[str, Any]]] = {
    "fpl": (lambda: sp.PrivateFPL(**BUDGET), {}),
    "fpl-short-horizon": (lambda: sp.PrivateFPL(**BUDGET, horizon=340, release_every=7), {"row_norm": 2.5}),
    "fpl-tree": (lambda: sp.PrivateFPL(**BUDGET, horizon=400, noise="tree", release_every=3), {}),
    "fpl-exact": (
        lambda: sp.PrivateFPL(**BUDGET, horizon=400, noise=sp.Tree(discrete=True), release_every=20),
        {},
    ),
    "fpl-tracking": (lambda: sp.PrivateFPL(**BUDGET, solver="tracking", release_every=2), {}),
    "fpl-smoothed": (lambda: sp.PrivateFPL(**BUDGET, solver="smoothed", release_every=7, horizon=340), {}),
    "fpl-regret": (lambda: sp.PrivateFPL(**BUDGET, horizon=400, release_every=8, publish_regret=True), {}),
    "fpl-centered": (lambda: sp.PrivateFPL(**BUDGET, release_every=10), {"center": True}),
    "fpl-bounds": (lambda: sp.PrivateFPL(**BUDGET, release_every=10), {"bounds": (-np.ones(D), 2.0)}),
    "fpl-no-regret": (lambda: sp.PrivateFPL(**BUDGET, release_every=10), {"regret": None}),
    "fpl-regret-every": (lambda: sp.PrivateFPL(**BUDGET), {"regret": sp.RegretLog(every=50)}),
    "fpl-doubling": (
        lambda: sp.papers.DoublingFPL(n_components=1, epsilon=50.0, delta=0.5, horizon=400),
        {},
    ),
    "leader": (lambda: sp.papers.PerturbedLeader(**BUDGET, release_every=4), {}),
    "window": (lambda: sp.SlidingWindowPCA(**BUDGET, window=32, release_every=5), {}),
    "window-ring": (lambda: sp.SlidingWindowPCA(**BUDGET, window=20, method="ring"), {}),
    "window-smoothed": (lambda: sp.SlidingWindowPCA(**BUDGET, window=20, method="smoothed"), {}),
    "window-forgetting": (lambda: sp.SlidingWindowPCA(**BUDGET, window=20, method="forgetting"), {}),
    "oja": (lambda: sp.Oja(n_components=K, release_every=9), {}),
    "private-oja": (lambda: sp.PrivateOja(**BUDGET, batch_size=16), {}),
    "dp-pca": (lambda: sp.DPPCA(n_components=K, epsilon=50.0, delta=0.1, horizon=340, batch_size=56), {}),
    "tumbling": (lambda: sp.Tumbling(sp.GaussianCovariance(**BUDGET), release_every=40), {}),
    "tumbling-adaptive": (
        lambda: sp.Tumbling(
            sp.AdaptiveCovariance(n_components=K, epsilon=50.0, delta=1e-2), release_every=90, map_from="previous"
        ),
        {},
    ),
    "tumbling-wishart": (lambda: sp.Tumbling(sp.papers.WishartCovariance(**BUDGET), release_every=25, horizon=340), {}),
}
ROWS = np.random.default_rng(0).standard_normal((N, D)) * np.linspace(1.0, 0.2, D)


def fresh(case: str, **more: Any) -> sp.Stream:
    make, options = CASES[case]
    if isinstance(options.get("regret"), sp.RegretLog):
        options = options | {"regret": sp.RegretLog(every=options["regret"].every)}
    return sp.Stream(make(), seed=3, **options, **more)


def test_every_public_algorithm_is_tried() -> None:
    tried = {type(make()).__name__ for make, _ in CASES.values()}
    names = [*sp.__all__, *sp.papers.__all__]
    processors = {name for name in names if (kind := storable(name)) is not None and issubclass(kind, sp.Algorithm)}
    assert tried == processors


@pytest.mark.parametrize("commit_every", [1, 13, "1h"])
@pytest.mark.parametrize("case", CASES)
def test_a_run_stopped_again_and_again_gives_the_same_bits(case: str, commit_every: int | str) -> None:
    whole = fresh(case)
    expected = [release.to_json() for release in whole.push_many(ROWS).releases]
    store = Store(":memory:", commit_every=commit_every)
    stream, got = fresh(case, store=store), []
    cuts = np.random.default_rng(len(case)).integers(0, N, 6).tolist() if commit_every != 1 else [1, 100, 101]
    for end in [*sorted(cuts), N]:
        step = 7 if commit_every == 13 else 1000
        while stream.t < end:
            got += stream.push_many(ROWS[stream.t : min(end, stream.t + step)]).releases
        stream = sp.Stream.resume(store)
        assert stream.t == end
        if stream.release is not None:
            assert stream.release.to_json() == got[-1].to_json()
    assert [release.to_json() for release in got] == expected
    assert [release.to_json() for release in store.releases()] == expected
    assert stream.guarantee == whole.guarantee
    assert stream.features == whole.features
    if whole.engine.regret_log is not None:
        assert stream.regret.now() == whole.regret.now()
        assert stream.regret.history == whole.regret.history
    if whole.engine.private_log is not None:
        assert stream.private_regret.now() == whole.private_regret.now()
        assert stream.private_regret.history == whole.private_regret.history


@pytest.mark.parametrize("case", CASES)
def test_noise_from_the_system_is_played_again_from_the_fresh_bytes(case: str, tmp_path: Path) -> None:
    """Not seeded: what was released before a crash is made again, and all rows give all releases again."""
    make, options = CASES[case]
    path = tmp_path / "run.db"
    store = Store(path, commit_every="1h")
    stream = sp.Stream(make(), store=store, **options)
    read = [release.to_json() for release in stream.push_many(ROWS[:150]).releases]
    stream.push_many(ROWS[150:170])  # not read, and not durable
    store._let_go()  # as a crash does
    with Store(path, commit_every="1h") as store:
        resumed = sp.Stream.resume(store)
        assert resumed.t == 150 if read else resumed.t == 0
        read += [release.to_json() for release in resumed.push_many(ROWS[resumed.t :]).releases]
        assert [release.to_json() for release in store.releases()] == read
    check = Verification(path)
    check.file()
    check.replay()
    assert check.replay_all(Source(ROWS)) == len(read)
    changed = ROWS.copy()
    changed[100, 0] += 1e-3
    with pytest.raises(StoreCorruptError):
        check.replay_all(Source(changed))
    check.close()


class Source:
    features: tuple[str, ...] = ()
    bounds = None

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def blocks(self) -> Iterator[np.ndarray]:
        yield from np.array_split(self._rows, 7)

    def __iter__(self) -> Iterator[np.ndarray]:
        yield from self._rows


def test_the_end_of_a_stream_is_played_again(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    tumbling = sp.Tumbling(sp.GaussianCovariance(**BUDGET), release_every=40, horizon=400, keep_short=True)
    with Store(path, commit_every="1h") as store:
        stream = sp.Stream(tumbling, store=store)
        stream.push_many(ROWS[:90])
        last = stream.finish()
        assert last is not None
        assert stream.finish() is None
        store._let_go()  # as a crash does
    for _ in range(2):  # from the log, then from a snapshot
        with Store(path) as store:
            resumed = sp.Stream.resume(store)
            assert resumed.t == 90
            assert resumed.release is not None
            assert resumed.release.to_json() == last.to_json()
            with pytest.raises(HorizonReachedError):
                resumed.push(ROWS[0])
            assert [release.t for release in store.releases()] == [40, 80, 90]
    check = Verification(path)
    assert check.replay_all(Source(ROWS)) == 3
    check.close()


def test_blocks_are_played_again_as_blocks_and_as_rows(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Store(path, commit_every="1h") as store:
        stream = sp.Stream(sp.PrivateFPL(**BUDGET, release_every=20), features=list("abcde"), store=store)
        leaves = stream.leaves()
        for block in leaves.blocks([ROWS[:130]], 0):
            stream.push_block(block)
        store.flush()
        store._let_go()  # as a crash does
    with Store(path) as store:
        resumed = sp.Stream.resume(store)
        assert resumed.t == 130
        resumed.push_many(ROWS[130:])
        store.flush()
        count = len([*store.releases()])
    check = Verification(path)
    source = Source(ROWS)
    source.features = tuple("abcde")
    assert check.replay_all(source) == count == 16
    check.close()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.one_of(st.integers(1, 60), st.just("resume"), st.just("push"), st.just("flush")), max_size=14),
    st.sampled_from([1, 2, 29, "1ms", "1h"]),
)
def test_any_order_of_pushes_commits_and_resumes(acts: list[int | str], commit_every: int | str) -> None:
    algorithm = sp.PrivateFPL(**BUDGET, release_every=6, n_features=D)
    whole = sp.Stream(algorithm, seed=1, on_bad_row="zero")
    store = Store(":memory:", commit_every=commit_every, snapshot_every="1ms" if commit_every == 2 else "1h")
    stream = sp.Stream(algorithm, seed=1, on_bad_row="zero", store=store)
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
    assert [release.to_json() for release in store.releases()] == [release.to_json() for release in releases]
    assert resumed.admission.bad_rows == whole.admission.bad_rows


def test_names_bounds_and_the_first_row_come_back() -> None:
    store = Store(":memory:", commit_every=1)
    bounds = {"b": (0.0, 2.0), "a": (-1.0, 1.0)}
    stream = sp.Stream(sp.PrivateFPL(**BUDGET | {"n_components": 1}), bounds=bounds, store=store)
    early = sp.Stream.resume(store)  # before any row
    assert early.t == 0
    early.push({"a": 0.5, "b": 1.5})
    with pytest.raises(StoreLockedError):
        stream.push({"a": 0.5, "b": 1.5})
    later = sp.Stream.resume(store)
    assert later.features == ("a", "b")
    assert later.push({"b": 1.0, "a": 0.0}).t == 2
    with pytest.raises(BadRowError):
        later.push({"c": 1.0, "a": 0.0})
    assert later.t == 2


def test_a_seed_never_enters_the_database_but_its_mark_does() -> None:
    store = Store(":memory:")
    stream = sp.Stream(sp.PrivateFPL(**BUDGET), store=store, seed=987654321)
    stream.push_many(ROWS[:10])
    resumed = sp.Stream.resume(store)
    assert resumed.guarantee.caveat == stream.guarantee.caveat != ""
    assert resumed.push_many(ROWS[10:20]).releases[-1].guarantee.caveat != ""
    assert "987654321" not in "".join(store._open_database().db.iterdump())


def test_a_store_holds_one_run_and_what_cannot_be_kept_is_refused_at_once() -> None:
    store = Store(":memory:")
    sp.Stream(sp.PrivateFPL(**BUDGET), store=store)
    with pytest.raises(BadParameterError, match="Continue it"):
        sp.Stream(sp.PrivateFPL(**BUDGET), store=store)

    class Own(sp.PrivateFPL):
        pass

    with pytest.raises(BadParameterError, match="Own cannot be kept"):
        sp.Stream(Own(**BUDGET), store=Store(":memory:"))
    with pytest.raises(BadParameterError, match="holds no run"):
        sp.Stream.resume(Store(":memory:"))
    with pytest.raises(BadParameterError, match="store="):
        sp.Stream(sp.PrivateFPL(**BUDGET), store="run.db")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, -1, True, 2.5, "soon", "0ms", "0.5rows", None])
def test_schedules_outside_their_domain(wrong: Any) -> None:
    with pytest.raises(BadParameterError, match="commit_every"):
        Store(":memory:", commit_every=wrong)


def test_the_ledger_is_debited_once_even_if_the_run_stops_before_its_first_row(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("rows", Budget(1.0, 1e-6))
        with Store(tmp_path / "run.db") as store:
            sp.Stream(sp.PrivateFPL(**BUDGET), store=store, ledger=ledger.account("rows"))
        assert not ledger.balance("rows").entries
        for _ in range(3):
            with Store(tmp_path / "run.db") as store:
                sp.Stream.resume(store).push_many(ROWS[:10])
            assert len(ledger.balance("rows").entries) == 1
        with Store(tmp_path / "other.db") as store:
            stream = sp.Stream(sp.PrivateFPL(**BUDGET), store=store, ledger=ledger.account("rows"))
            with pytest.raises(BudgetExhaustedError):
                stream.push(ROWS[0])
        with Store(tmp_path / "other.db") as store:
            resumed = sp.Stream.resume(store)
            with pytest.raises(BudgetExhaustedError):
                resumed.push(ROWS[0])
            assert store.durable == resumed.t == 0


def test_releases_read_in_another_thread_commit_no_half_of_a_block() -> None:
    rows = np.tile(ROWS, (12, 1))
    expected = [
        r.to_json() for r in sp.Stream(sp.PrivateFPL(**BUDGET, release_every=3), seed=3).push_many(rows).releases
    ]
    for _ in range(2):
        store = Store(":memory:", commit_every="1h", snapshot_every="1ms")
        stream = sp.Stream(sp.PrivateFPL(**BUDGET, release_every=3), seed=3, store=store)
        reads, problems = [0], []

        def reader(watched: sp.Stream, reads: list[int] = reads, problems: list[Exception] = problems) -> None:
            try:
                while watched.t < len(rows):
                    if watched.release is not None:
                        reads[0] += 1
            except Exception as problem:
                problems.append(problem)

        thread = Thread(target=reader, args=(stream,))
        thread.start()
        for start in range(0, len(rows), 40):
            stream.push_many(rows[start : start + 40])
        thread.join()
        assert not problems
        assert reads[0]
        resumed = sp.Stream.resume(store)
        assert resumed.t == len(rows)
        assert [release.to_json() for release in store.releases()] == expected
        assert resumed.regret.now().t == len(rows)


@pytest.mark.parametrize(
    "end", ["pass", "raise SystemExit(3)", "raise ValueError", "raise KeyboardInterrupt", "del store"]
)
def test_the_end_of_the_interpreter_commits_what_nobody_closed(tmp_path: Path, end: str) -> None:
    code = f"""
import numpy as np, streampca as sp
store = sp.Store({str(tmp_path / "run.db")!r}, commit_every="1h")
stream = sp.Stream(sp.PrivateFPL(**{BUDGET!r}, release_every=7), store=store)
for row in np.full((40, 3), 0.1):
    stream.push(row)
{end}
"""
    subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False, timeout=120)
    with Store(tmp_path / "run.db") as store:
        assert sp.Stream.resume(store).t == 40


def test_the_end_of_the_interpreter_does_not_wait_for_ever_for_a_stream(tmp_path: Path) -> None:
    code = f"""
import threading
import numpy as np, streampca as sp
from streampca.store import log
log._PATIENCE = 0.1
store = sp.Store({str(tmp_path / "run.db")!r}, commit_every="1h")
stream = sp.Stream(sp.PrivateFPL(**{BUDGET!r}, release_every=7), store=store)
stream.push_many(np.full((40, 3), 0.1))
held = threading.Event()
def hold():
    with stream.engine.guard.lock:
        held.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0
    assert "not committed, a thread holds the stream" in ended.stderr


def test_a_program_may_push_and_close_in_an_exit_handler_of_its_own(tmp_path: Path) -> None:
    """One that was registered before this library was imported runs after the commit at the end."""
    code = f"""
import atexit
atexit.register(lambda: (stream.push([0.1, 0.2, 0.3]), store.close()))
import numpy as np, streampca as sp
store = sp.Store({str(tmp_path / "run.db")!r}, commit_every="1h")
stream = sp.Stream(sp.PrivateFPL(**{BUDGET!r}, release_every=7), store=store)
stream.push_many(np.full((40, 3), 0.1))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    with Store(tmp_path / "run.db") as store:
        assert sp.Stream.resume(store).t == 41
