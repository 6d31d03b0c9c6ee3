"""Calls inside calls: what would change a stream raises `StreamBusyError`, or happens completely before or after.

Signal handlers, mappings, accounts, finalizers and tracers push inside `push`. No row number is released twice, and no
row is lost without an error. CI does some; `pytest -m long tests/core` does all.
"""

import copy
import gc
import logging
import os
import random
import threading
import weakref
from collections import UserDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from interrupts import within

import streampca as sp
from streampca.errors import HorizonReachedError, StoreLockedError, StreamBusyError, StreamPCAError, UsageError
from streampca.stream import replay

D, NAMES = 4, list("abcd")
ROWS = np.random.default_rng(0).standard_normal((120_000, D)) / 4.0

fpl = partial(sp.PrivateFPL, n_components=2, epsilon=1.0, release_every=1, center=False)
GAUSSIAN = sp.GaussianCovariance(n_components=2, epsilon=1.0, center=False)
WINDOW = sp.SlidingWindowPCA(n_components=2, epsilon=1.0, center=False, window=20, release_every=2)
MAKE: dict[str, Callable[[], Any]] = {
    "fpl": lambda: sp.Stream(fpl(), row_norm=1.0, features=NAMES, seed=3),
    "waiting": lambda: sp.Stream(fpl(release_every=5), row_norm=1.0, features=NAMES, seed=3),
    "unnamed": lambda: sp.Stream(fpl(release_every=2), row_norm=1.0, seed=3),
    "centered": lambda: sp.Stream(fpl(release_every=3, center=True), row_norm=1.0, features=NAMES, seed=3),
    "regret": lambda: sp.Stream(
        fpl(horizon=120_000, release_every=4, publish_regret=True), row_norm=1.0, features=NAMES, seed=3
    ),
    "warm-up": lambda: sp.Stream(fpl(release_every=4), features=NAMES, seed=3, bounds="private", warmup=40),
    "window": lambda: sp.Stream(WINDOW, row_norm=1.0, seed=3),
    "tumbling": lambda: sp.Stream(sp.Tumbling(GAUSSIAN, release_every=6, keep_short=True), row_norm=1.0, seed=3),
    "people": lambda: sp.Stream(fpl(horizon=30_000, unit=sp.Person()), row_norm=1.0, features=NAMES, seed=3),
}


class Feed:
    """Pushes rows of its own to a stream, and notes which row got which number, and every release handed out."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.has_people = stream, stream.algorithm.unit is not None
        self.numbers: list[tuple[int, int]] = []  # number in the stream, place in ROWS
        self.released: list[tuple[int, str]] = []
        self.given = self.refused = 0

    def rows(self, count: int) -> tuple[int, dict[str, Any]]:
        """Rows that were not given before: the place of the first, and further arguments."""
        at, self.given = self.given, self.given + count
        people = [at // 3 % 50 for at in range(at, at + count)]
        return at, {"person": people[0] if count == 1 else people} if self.has_people else {}

    def push(self) -> None:
        at, options = self.rows(1)
        self.took([self.stream.push(ROWS[at], **options)], at)

    def push_mapping(self, act: Callable[[], object]) -> None:
        at, options = self.rows(1)
        self.took([self.stream.push(Acting(ROWS[at], act), **options)], at)

    def push_many(self) -> None:
        at, options = self.rows(3)
        self.took(list(self.stream.push_many(ROWS[at : at + 3], **options)), at)

    def push_block(self) -> None:
        at, _ = self.rows(1)
        with suppress(UsageError):  # of this place no more
            self.took(
                [self.stream.push_block(next(self.stream.leaves().blocks([ROWS[at : at + 1]], self.stream.t)))], at
            )

    def run(self) -> None:
        at, _ = self.rows(2)
        for i, step in enumerate(self.stream.run(row for row in ROWS[at : at + 2])):
            self.took([step], at + i)

    def inside(self) -> None:
        """Push inside another call."""
        inside = Counted(self.push)
        inside()
        self.refused += inside.refused

    def took(self, steps: list[Any], at: int) -> None:
        for i, step in enumerate(steps):
            self.numbers.append((step.t, at + i))
            if step.release is not None:
                self.released.append((step.release.t, step.release.to_json()))

    def check(self, name: str | None = None) -> None:
        """Each number and each release came once; with a seed, they are those of the same rows without nested calls."""
        numbers, places = zip(*sorted(self.numbers), strict=True)
        assert numbers == tuple(range(1, self.stream.t + 1))
        assert len(dict(self.released)) == len(self.released)
        if name is None:
            return
        other, rows = MAKE[name](), ROWS[list(places)]
        options = {"person": [place // 3 % 50 for place in places]} if self.has_people else {}
        expected = {release.t: release.to_json() for release in other.push_many(rows, **options).releases}
        assert dict(self.released) == expected
        one, two = self.stream.regret.now(), other.regret.now()
        assert (one.t, one.opt, one.captured) == (two.t, two.opt, two.captured)


class Acting(UserDict[str, float]):
    """A row that does something when a value is read."""

    def __init__(self, values: Any, act: Callable[[], object]) -> None:
        super().__init__(zip(NAMES, values, strict=True))
        self._act = act

    def __getitem__(self, name: str) -> float:
        if name == "c":
            self._act()
        return self.data[name]


class Counted:
    """A call, counted by its outcome: ``made``, or ``refused`` by one of these errors."""

    def __init__(self, call: Callable[[], object], *errors: type[Exception]) -> None:
        self._call, self._errors, self.made, self.refused = call, errors or (StreamBusyError,), 0, 0

    def __call__(self) -> None:
        try:
            self._call()
            self.made += 1
        except self._errors:
            self.refused += 1


class Number:
    """A cell that does something when it becomes a number."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def __float__(self) -> float:
        self._act()
        return 0.1


def at_every_place(
    call: Callable[[], object], inside: Callable[[], object], *, opcodes: bool = False, step: int = 1
) -> int:
    """`within` at every place, or every so many; return how many there were. Calls with a release have more."""
    place, missed, rng = 1, 0, random.Random(0)
    while missed < 12:
        if within(call, inside, place, opcodes=opcodes):
            place, missed = place + rng.randint(1, 2 * step - 1), 0
        else:
            missed += 1
    return place


CALLS = {"push": Feed.push, "push_many": Feed.push_many, "push_block": Feed.push_block, "run": Feed.run}


@pytest.mark.parametrize(
    ("opcodes", "step"), [(False, 20), *(pytest.param(each, 1, marks=pytest.mark.long) for each in (False, True))]
)
@pytest.mark.parametrize("name", MAKE)
def test_a_push_at_places_inside_a_push(name: str, opcodes: bool, step: int) -> None:
    for how, call in CALLS.items():
        if (how == "run" and name == "people") or (how == "push_block" and name not in ("fpl", "unnamed")):
            continue
        feed = Feed(MAKE[name]())
        if name == "unnamed" and how == "push_block":
            feed.push()
        last = at_every_place(partial(call, feed), feed.inside, opcodes=opcodes, step=step)
        assert last > 100
        assert feed.refused > last / step / 8  # the other places are in the JSON of releases, outside the stream
        feed.check(name)


@pytest.mark.parametrize("opcodes", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_call_that_changes_a_stream_refuses_a_push_inside_it(opcodes: bool) -> None:
    """`finish`, `state`, copies, `restore`, `replay` and `adopt`: the push comes before or after, or is refused."""
    count = 0
    for place in range(1, 100_000, 1 if opcodes else 30):
        feed = Feed(MAKE["tumbling"]())
        for _ in range(8):
            feed.push()
        other, source = (
            Feed(sp.Stream(feed.stream.algorithm, row_norm=1.0, seed=3)),
            SimpleNamespace(features=None, bounds=None),
        )
        copied: list[Any] = []

        def call(feed: Feed = feed, other: Feed = other, source: Any = source, copied: list[Any] = copied) -> None:
            feed.stream.engine.adopt(source)
            feed.stream.engine.absorb_waiting()
            copied.append(copy.deepcopy(feed.stream))
            with suppress(UsageError):
                state = replay.saved(MAKE["tumbling"]().engine)["state"]
                replay.restore(other.stream.engine, state, None, copied=False)
            feed.stream.finish()

        def inside(feed: Feed = feed, other: Feed = other) -> None:
            other.inside()
            with suppress(HorizonReachedError):  # it is finished
                feed.inside()

        if not within(call, inside, place, opcodes=opcodes):
            break
        count += feed.refused + other.refused
        for one in (feed, other):
            if one.numbers:
                one.check()
        assert copied[0].t in (8, 9)
    assert count > 10


def test_the_error_of_a_cell_that_pushes_is_not_taken_for_a_bad_cell() -> None:
    stream = sp.Stream(fpl(), row_norm=1.0, features=NAMES)
    stream.push(ROWS[0])
    cells = [0.1, 0.2, Number(lambda: stream.push(ROWS[1])), 0.1]
    for row in (cells, tuple(cells), np.array(cells, dtype=object), dict(zip(NAMES, cells, strict=True))):
        for push in (stream.push, lambda row: stream.push_many([row])):
            with pytest.raises(StreamBusyError, match="busy"):
                push(row)
    assert stream.t == 1
    assert stream.admission.bad_rows == 0
    assert stream.push(ROWS[2]).t == 2


def test_what_may_be_done_inside_a_push() -> None:
    """Read the stream; push to another stream of the same algorithm; push from what `run` iterates."""
    stream = sp.Stream(fpl(), row_norm=1.0, features=NAMES, seed=3)
    other = Feed(sp.Stream(stream.algorithm, row_norm=1.0, features=NAMES, seed=3))
    seen: list[Any] = []

    def read() -> None:
        other.push()
        now, release = stream.regret.now(), stream.release
        assert release is not None
        report, subspace = stream.admission, stream.engine.subspace()
        seen.append((stream.t, release.t, now.t, report.rows, report.bad_rows, len(subspace.basis)))

    stream.push(ROWS[0])
    for i in range(1, 20):
        stream.push(Acting(ROWS[i], read))
    assert seen == [(t, t, t, t, 0, D) for t in range(1, 20)]
    other.check("fpl")
    feed = Feed(MAKE["waiting"]())
    assert at_every_place(feed.push, lambda: (feed.stream.regret.history, feed.stream.admission), step=8) > 50
    feed.check("waiting")

    def rows() -> Iterator[Any]:
        for i in range(20, 40):
            stream.push(ROWS[i])
            yield ROWS[i]

    assert [step.t for step in stream.run(rows())] == list(range(22, 61, 2))
    assert stream.push_many(rows()).first == 81  # the rows that it pushed came before


def test_a_push_inside_a_reading_spoils_no_figure() -> None:
    """A handler that pushes while regret is computed: the figures are those of before or of after."""
    feed = Feed(MAKE["waiting"]())
    feed.push()
    known: dict[int, Any] = {}
    records: list[Any] = []
    at_every_place(lambda: records.append(feed.stream.regret.now()), feed.inside)
    at_every_place(lambda: records.append(feed.stream.admission), feed.inside)
    assert feed.refused == 0
    feed.check("waiting")
    whole = MAKE["waiting"]()
    places = [place for _, place in sorted(feed.numbers)]
    for t, place in enumerate(places, 1):
        whole.push(ROWS[place])
        known[t] = whole.regret.now(), whole.admission
    for record in records:
        if isinstance(record, sp.AdmissionReport):
            assert record == known[record.rows][1]
        else:
            assert (record.opt, record.captured) == (known[record.t][0].opt, known[record.t][0].captured)


def test_an_account_and_finalizers_that_push() -> None:
    """Pushes from `debit`, `__del__`, a weak reference and the collector of cycles, all inside pushes."""
    feed = Feed(
        sp.Stream(fpl(), row_norm=1.0, features=NAMES, account=SimpleNamespace(debit=lambda *given: feed.inside()))
    )
    feed.push()
    assert (feed.refused, feed.stream.t) == (1, 1)

    class Dying:
        def __del__(self) -> None:
            feed.inside()

    def die(i: int) -> None:
        if i % 3 == 0:
            Dying()
        elif i % 3 == 1:
            weakref.finalize(Number(feed.inside), feed.inside)
        else:
            ring = Dying()
            ring.ring = ring  # type: ignore[attr-defined]
            del ring
            gc.collect(0)

    for i in range(30):
        feed.push_mapping(partial(die, i))
    assert feed.refused == 31
    feed.check()


@contextmanager
def durable(commit_every: int | str) -> Iterator[Feed]:
    """A durable stream; at the end, its store holds what was handed out."""
    store = sp.Store(":memory:", commit_every=commit_every)
    feed = Feed(sp.Stream(fpl(), row_norm=1.0, store=store))
    yield feed
    store.close()
    feed.check()
    assert sp.Stream.resume(store).t == len(feed.numbers)
    assert [(release.t, release.to_json()) for release in store.releases()] == sorted(feed.released)
    store.close()


def test_a_handler_of_log_records_that_pushes_from_the_writing_thread() -> None:
    """Push and read, in a thread of its own as it might wait for ever, while each commit pushes and reads."""
    commits: list[StreamBusyError] = []

    class Sink(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            feed.inside()
            try:
                commits.append(feed.stream.release and replay.saved(feed.stream.engine)["state"])
            except StreamBusyError as problem:
                commits.append(problem)

    logger, sink = logging.getLogger("streampca.store"), Sink()
    with durable(1) as feed:
        logger.addHandler(sink)
        logger.setLevel(logging.DEBUG)
        try:
            thread = threading.Thread(target=lambda: [feed.push() for _ in range(20)], daemon=True)
            thread.start()
            thread.join(60.0)
            assert not thread.is_alive()
        finally:
            logger.removeHandler(sink)
            logger.setLevel(logging.NOTSET)
        assert feed.refused == len(commits) == 20
    assert all(isinstance(problem, StreamBusyError) for problem in commits)


@pytest.mark.parametrize("commit_every", [1, "1h"])
def test_a_push_at_places_inside_what_a_durable_stream_does(commit_every: int | str) -> None:
    with durable(commit_every) as feed:
        for call in (feed.push, feed.push_many):
            assert at_every_place(call, feed.inside, step=12) > 100
        assert feed.refused > 20


def uncommitted(every: int) -> tuple[sp.Store, Feed]:
    """A store and a stream of three rows, of which it knows none."""
    store = sp.Store(":memory:", commit_every="1h")
    feed = Feed(sp.Stream(fpl(release_every=every), row_norm=1.0, store=store))
    feed.push_many()
    return store, feed


def test_a_store_that_is_closed_inside_a_push() -> None:
    """It is refused, and the store stays open; or it is closed before the row, which is refused, or after it."""
    refused = closed = 0
    for place in range(1, 10_000, 11):
        store, feed = uncommitted(2)
        close = Counted(store.close)
        try:
            if not within(feed.push, close, place):
                break
        except StoreLockedError:
            closed += 1
        refused += close.refused
        store.close()
        assert sp.Stream.resume(store).t == feed.stream.t == len(feed.numbers)
        assert {(release.t, release.to_json()) for release in store.releases()} >= set(feed.released)
    assert refused > 10
    assert closed > 0


def test_a_push_inside_the_end_of_a_store_is_durable_or_refused() -> None:
    taken = refused = 0
    for place in range(1, 10_000, 5):
        store, feed = uncommitted(4)
        push = Counted(feed.push, StreamBusyError, StoreLockedError)
        if not within(store.close, push, place):
            break
        taken, refused = taken + push.made, refused + push.refused
        assert sp.Stream.resume(store).t == len(feed.numbers)
        store.close()
    assert taken > 3
    assert refused > 3


def test_stores_and_epochs_do_not_begin_inside_one_another() -> None:
    others: list[Any] = []
    for place in range(1, 10_000, 19):
        store = sp.Store(":memory:")

        def begin(store: sp.Store = store) -> None:
            try:
                others.append(sp.Stream(fpl(), row_norm=1.0, store=store))
            except StreamPCAError as problem:
                others.append(problem)

        count = len(others)
        if not within(begin, begin, place):
            break
        one, two = others[count:]
        assert isinstance(one, sp.Stream) != isinstance(two, sp.Stream)
        assert isinstance(one if isinstance(two, sp.Stream) else two, (StreamBusyError, UsageError))
    assert sum(isinstance(one, StreamBusyError) for one in others) > 5
    store = sp.Store(":memory:")
    stream = sp.Stream(fpl(), row_norm=1.0, store=store)
    with store.in_one_commit({"number": 1}):
        stream.push(ROWS[0])
        with pytest.raises(StreamBusyError, match="epoch"), store.in_one_commit({"number": 2}):
            stream.push(ROWS[1])
    assert store.epoch == {"number": 1, "rows": 1}


def test_a_debit_at_places_inside_a_debit(tmp_path: Path) -> None:
    ledger, refused = sp.Ledger(tmp_path / "ledger.db"), 0
    for place in range(1, 10_000, 25):
        name = str(place)
        ledger.set_budget(name, sp.Budget(10.0, 1e-3))
        debit = Counted(partial(ledger.debit, name, fpl()))
        inside = within(debit, debit, place)
        assert len(ledger.balance(name).entries) == debit.made
        refused += debit.refused
        if not inside:
            break
    assert refused > 0


@pytest.mark.parametrize(
    ("room", "method", "rows", "count", "first", "step"),
    [
        ("river", "learn_one", {"a": 0.3, "b": 0.1}, "t", True, 31),  # the first row makes the stream
        ("river", "learn_one", {"a": 0.3, "b": 0.1}, "t", False, 11),
        ("sklearn", "partial_fit", ROWS[:20], "n_samples_seen_", True, 300),
    ],
)
def test_estimators_learn_from_each_row_once(
    room: str, method: str, rows: Any, count: str, first: bool, step: int
) -> None:
    estimator, refused = pytest.importorskip(f"streampca.{room}").PrivatePCA, 0
    for place in range(1, 100_000, step):
        model = estimator(n_components=1, row_norm=1.0)
        learn = Counted(partial(getattr(model, method), rows))
        if not first:
            learn()
        if not within(learn, learn, place):
            break
        assert getattr(model, count) == (20 if room == "sklearn" else 1) * learn.made
        refused += learn.refused
    assert refused > 5


def test_threads_wait_while_calls_inside_are_refused() -> None:
    feed = Feed(sp.Stream(fpl(release_every=2), row_norm=1.0, features=NAMES))

    def act() -> None:
        with pytest.raises(StreamBusyError):
            feed.stream.push(ROWS[0])

    def work(i: int) -> Any:
        return feed.stream.push(Acting(ROWS[i], act))

    with ThreadPoolExecutor(4) as pool:
        feed.took(list(pool.map(work, range(400))), 0)
    assert feed.stream.t == 400
    feed.check()


@pytest.mark.parametrize("kind", ["store", "copy"])
def test_no_two_threads_wait_for_each_other(kind: str) -> None:
    """One ends a stream and waits for a push of the other, which ends it inside that push."""
    if kind == "store":
        store = sp.Store(":memory:")
        stream = sp.Stream(fpl(), row_norm=1.0, features=NAMES, store=store)
        end: Callable[[], object] = store.close
        stream.push(ROWS[0])
    else:
        stream = copy.deepcopy(sp.Stream(fpl(horizon=100), row_norm=1.0, features=NAMES))
        end = stream.finish
        stream.push(ROWS[0])
    waiting, ended = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        end()

    thread = threading.Thread(target=wait, daemon=True)

    def act() -> None:
        thread.start()
        waiting.wait()
        thread.join(0.05)
        with pytest.raises(StreamBusyError):
            end()

    def push() -> None:
        stream.push(Acting(ROWS[1], act))
        ended.set()

    threading.Thread(target=push, daemon=True).start()
    assert ended.wait(20.0)
    thread.join(20.0)
    assert not thread.is_alive()


def test_a_push_that_is_under_way_in_the_child_of_a_fork_is_refused_there() -> None:
    """The child continues as another run from its next row on, and pays for it before."""
    paid: list[bytes] = []

    class Account:
        def debit(self, guarantee: Any, start: bytes) -> None:
            paid.append(start)

    stream = sp.Stream(fpl(), row_norm=1.0, features=NAMES, account=Account())
    stream.push(ROWS[0])
    parent, children = os.getpid(), []

    def work() -> None:
        try:
            stream.push(Acting(ROWS[1], lambda: children.append(os.fork())))
        except StreamBusyError:
            if os.getpid() == parent:
                raise
            assert (stream.t, len(paid)) == (1, 1)
            assert stream.push(ROWS[2]).t == 2
            assert len(paid) == 2
            os._exit(7)
        if os.getpid() != parent:
            os._exit(8)

    try:
        work()
    finally:
        if os.getpid() != parent:
            os._exit(9)
    assert stream.t == 2
    assert len(paid) == 1
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
