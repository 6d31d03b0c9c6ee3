"""Streams whose inputs are the periods of a public calendar."""

import copy
import pickle
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from dense_forms import strategy

import streampca as sp
from streampca.errors import (
    BadParameterError,
    BadRowError,
    HorizonReachedError,
    NoReleaseError,
    SourceError,
    UsageError,
)
from streampca.rows.people import NOBODY
from streampca.sources import NumberedRows, from_csv
from streampca.store import Store
from streampca.stream import periods

DAY = 86_400 * 10**6
START = "2026-01-01T00:00+01:00"
FIRST = datetime(2025, 12, 31, 23, tzinfo=UTC)
ROWS = np.random.default_rng(5).normal(size=(120, 3)) / 4.0


class Clock:
    """A clock that tests set, in days since the start."""

    days = 0.0

    def __call__(self):
        return round(FIRST.timestamp()) * 10**6 + round(self.days * DAY)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(periods, "clock", clock)
    return clock


def fpl(**more):
    return sp.PrivateFPL(**{"n_components": 1, "epsilon": 1.0, "horizon": "10d", "release_every": "1d"} | more)


def stream(algorithm=None, **more):
    given = {"row_norm": 1.0, "features": 3, "seed": 4, "start": START} | more
    return sp.Stream(algorithm or fpl(), **given)


def texts(releases):
    return [release.to_json() for release in releases]


def table(days, rows=ROWS):
    """A frame of rows at these days since the start."""
    times = [(FIRST + timedelta(days=float(day))).isoformat() for day in days]
    return pd.DataFrame(rows[: len(times)], columns=list("abc")).assign(at=times)


DAYS = np.linspace(0.0, 9.99, 120)


def of_file(frame, algorithm=None, **more):
    """The releases of a table whose rows have times."""
    run = stream(algorithm, features=("a", "b", "c"), **more)
    return [step.release for step in run.run(frame, time="at")]


ALGORITHMS = {
    "fpl": fpl(),
    "fpl-about-zero": fpl(center=False),
    "fpl-tree": fpl(noise="tree"),
    "fpl-tracking": fpl(solver="tracking", horizon=None),
    "ring": sp.SlidingWindowPCA(window="3d", n_components=1, epsilon=1.0, release_every="1d"),
    "forgetting": sp.SlidingWindowPCA(
        window="3d", n_components=1, epsilon=1.0, release_every="1d", method="forgetting"
    ),
    "tumbling": sp.Tumbling(sp.GaussianCovariance(n_components=1, epsilon=1.0), release_every="1d"),
    "manual": fpl(release_every="manual", horizon=10),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_rows_one_by_one_in_blocks_and_by_their_times_give_the_same_bits(name, clock):
    algorithm = ALGORITHMS[name]
    is_manual = name == "manual"
    start = None if is_manual else START
    one, many = (stream(algorithm, features=("a", "b", "c"), start=start) for _ in range(2))
    single, blocks = [], []
    for day in range(10):
        rows = ROWS[(day <= DAYS) & (day + 1 > DAYS)]
        for run, kept in ((one, single), (many, blocks)):
            kept.extend(run.tick().releases)
            if run is one:
                kept.extend(step.release for row in rows if (step := run.push(row)).release is not None)
            else:
                kept.extend(run.push_many(rows).releases)
            if is_manual:
                kept.append(run.close_period().release)
        clock.days = day + 1.0
    if not is_manual:
        single.extend(one.tick().releases)
        many.close()
        blocks.append(many.release)
    assert [release.t for release in single] == list(range(1, 11))
    assert texts(single) == texts(blocks)
    assert one.t == 10
    assert one.admission.rows == 120
    if not is_manual:
        times = table(DAYS)
        run = stream(algorithm, features=("a", "b", "c"))
        dated = [step.release for step in run.run(times, time="at", end="2026-01-11T00:00+01:00")]
        assert texts(dated) == texts(single)
        assert dated[2].period == (FIRST + timedelta(days=2), FIRST + timedelta(days=3))


def test_the_exact_matrix_of_a_release_is_that_of_the_rows_of_its_periods():
    for name, first in (("fpl-about-zero", 0), ("ring", 5), ("tumbling", 7)):
        algorithm = sp.SlidingWindowPCA(
            window="3d", n_components=1, epsilon=1e6, release_every="1d", center=False
        ) if name == "ring" else sp.Tumbling(
            sp.GaussianCovariance(n_components=1, epsilon=1e6, center=False), release_every="1d"
        ) if name == "tumbling" else fpl(epsilon=1e6, center=False)  # fmt: skip
        run = stream(algorithm, features=("a", "b", "c"), regret=None)
        released = [step.release for step in run.run(table(DAYS), time="at", end="2026-01-11T00:00+01:00")]
        rows = ROWS[(first <= DAYS) & (DAYS < 8)]
        np.testing.assert_allclose(released[7].gram, rows.T @ rows, atol=0.01)


def test_the_regret_counts_a_step_a_period(clock):
    run = stream(fpl(center=False))
    rewards = []
    for day in range(3):
        clock.days = float(day)
        run.push_many(ROWS[10 * day : 10 * day + 10])
        basis = np.eye(3, 1) if run.release is None else run.release.subspace.basis
        rewards.append(float(np.sum((ROWS[10 * day : 10 * day + 10] @ basis) ** 2)))
        clock.days = day + 1.0
        run.tick()
    record = run.regret.now()
    assert record.t == 3
    assert record.reward == pytest.approx(sum(rewards), abs=1e-4)
    assert record.bound is None


def test_a_clock_that_is_set_back_closes_nothing_and_keeps_rows_in_the_present_period(clock):
    one, other = stream(), stream()
    for run, later in ((one, 0.5), (other, 2.5)):
        clock.days = 2.2
        run.push(ROWS[0])
        assert run.t == 2
        clock.days = later
        step = run.push(ROWS[1])
        assert (step.release, run.t, len(run.tick())) == (None, 2, 0)
        clock.days = 3.0
        run.tick()
    assert texts([one.release]) == texts([other.release])


def test_after_an_outage_all_due_periods_are_closed_but_not_ten_thousand(clock):
    run = stream(fpl(horizon=None))
    run.tick()
    clock.days = 30.0
    assert [release.t for release in run.tick().releases] == list(range(1, 31))
    clock.days = 10_031.0
    with pytest.raises(BadParameterError, match="10000 periods that are due, not 10001"):
        run.push(ROWS[0])
    assert (run.t, run.admission.rows) == (30, 0)
    run.close()  # closes none, and the rows are kept
    assert run.t == 30


def test_a_row_of_the_wrong_shape_closes_no_period(clock):
    run = stream()
    clock.days = 2.5
    with pytest.raises(BadRowError):
        run.push(ROWS[0, :2])
    assert run.t == 0
    assert [step.t for step in run.tick()] == [1, 2]


def test_dates_are_times_at_midnight_and_a_table_needs_its_column():
    frame = table([0.1, 1.1, 2.1]).assign(at=[date(2026, 1, day) for day in (1, 2, 3)])
    run = stream(features=("a", "b", "c"), start="2026-01-01T00:00Z")
    counts = [(step.t, run.admission.rows) for step in run.run(frame, time="at")]
    assert counts[-1] == (10, 3)
    run = stream(features=("a", "b", "c"))
    with pytest.raises(SourceError, match="no column 'when'"):
        list(run.run(frame, time="when"))
    with pytest.raises(UsageError, match="time, end: expected both"):
        list(run.run(frame, end="2026-01-11T00:00+01:00"))


def test_tick_accepts_a_time(clock):
    run = stream()
    assert len(run.tick("2026-01-03T00:00+01:00")) == 2
    assert len(run.tick(datetime(2026, 1, 1, tzinfo=UTC))) == 0
    with pytest.raises(BadParameterError, match="now="):
        run.tick("2026-01-03")


def test_the_horizon_counts_periods(clock):
    run = stream(fpl(horizon="2d"))
    run.push(ROWS[0])
    clock.days = 5.0
    assert [release.t for release in run.tick().releases] == [1, 2]
    with pytest.raises(HorizonReachedError, match="2 periods"):
        run.push(ROWS[1])
    assert run.admission.rows == 1


def test_rows_that_are_bad_or_outside_are_absent_and_late_times_too():
    frame = table(DAYS)
    dropped = frame[(DAYS >= 1) & (DAYS < 10) & (np.arange(120) % 7 != 0)]
    frame.loc[np.arange(120) % 7 == 0, "at"] = "no time"
    bad = frame.copy()
    bad.loc[3, "at"] = None
    start = "2026-01-02T00:00+01:00"
    later = table([*DAYS[20:30], 40.0], ROWS[20:31])
    assert texts(of_file(frame, fpl(horizon="9d"), start=start)) == texts(
        of_file(dropped, fpl(horizon="9d"), start=start)
    )
    assert texts(of_file(later)) == texts(of_file(later.iloc[:-1]))
    nothing = table(DAYS)
    nothing.loc[:, "a"] = np.nan
    assert texts(of_file(nothing)) == texts(of_file(table([])))


@pytest.mark.parametrize("center", [True, False])
def test_a_row_out_of_order_raises_after_the_rows_before_it(center):
    days = DAYS.copy()
    days[60] = 9.5  # from the future: the next one is out of order
    run = stream(fpl(center=center), features=("a", "b", "c"))
    with pytest.raises(SourceError, match="out of order: sort the rows by at"):
        list(run.run(table(days), time="at"))
    assert run.t == 9
    assert run.admission.rows == 61


def test_every_period_up_to_the_end_has_one_release():
    assert [release.t for release in of_file(table([4.5]))] == list(range(1, 11))
    run = stream(fpl(horizon=None), features=("a", "b", "c"))
    steps = list(run.run(table([0.5]), time="at", end="2026-01-04T00:00+01:00"))
    assert [step.t for step in steps] == [1, 2, 3]


def test_the_curator_sees_how_many_rows_have_no_period(caplog):
    run = stream(features=("a", "b", "c"))
    list(run.run(table([-3.0, 0.5, 1.5, 400.0]), time="at"))
    record = caplog.records[0]
    assert (record.name, record.args) == ("streampca.curator", (2, 4, "at"))
    assert "no readable at, or one outside of the periods" in record.getMessage()


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("2026-01-03T00:00", "end="), ("2026-01-03T01:00+01:00", "end of a period of 1d"),
        ("2025-01-03T00:00+01:00", "after start="), ("2026-03-01T00:00+01:00", "within horizon=10 periods"),
    ],
)  # fmt: skip
def test_a_bad_end_is_refused(end, message):
    run = stream(features=("a", "b", "c"))
    with pytest.raises(BadParameterError, match=message):
        list(run.run(table([0.5]), time="at", end=end))
    assert run.t == 0


def test_arrivals_and_times_do_not_mix(clock):
    run = stream(features=("a", "b", "c"))
    run.push(ROWS[0])
    with pytest.raises(UsageError, match="counted by their arrival, these by their time"):
        list(run.run(table([0.5]), time="at"))
    other = stream(features=("a", "b", "c"))
    list(other.run(table([0.5]), time="at", end="2026-01-03T00:00+01:00"))
    with pytest.raises(UsageError, match="counted by their time, these by their arrival"):
        other.push(ROWS[0])
    clock.days = 8.0
    other.close()
    assert other.t == 2  # the clock closes no period of a file


REFUSED = {
    "adjacency='replace', release_every='1d'": lambda: fpl(adjacency="replace"),
    "publish_regret=True, release_every='1d'": lambda: fpl(publish_regret=True),
    "release_every='1d': not supported. Use Exact()": lambda: fpl(solver="smoothed"),
    "release_every='1d': not supported by PrivateOja": lambda: sp.PrivateOja(
        n_components=1, epsilon=1.0, horizon=10, batch_size=1, release_every="1d"
    ),
    "method='smoothed', release_every='1d'": lambda: sp.SlidingWindowPCA(
        window="3d", n_components=1, epsilon=1.0, release_every="1d", method="smoothed"
    ),
    "release_every='1d': not supported by Tumbling": lambda: sp.Tumbling(
        sp.MatrixLaplaceCovariance(n_components=1, epsilon=1.0), release_every="1d"
    ),
    "bounds='private', release_every='1d'": lambda: sp.Stream(fpl(), bounds="private", features=3, start=START),
    "start=None: expected a time with its time zone": lambda: sp.Stream(fpl(), row_norm=1.0, features=3),
    "start='2026-01-01': expected a time": lambda: sp.Stream(fpl(), row_norm=1.0, start="2026-01-01"),
    "start='2026-01-01T00:00Z': expected None": lambda: sp.Stream(
        fpl(release_every=10, horizon=10), row_norm=1.0, start="2026-01-01T00:00Z"
    ),
    "release_every='manual'": lambda: sp.Stream(fpl(release_every="manual", horizon=2), row_norm=1.0, start=START),
    "release_every='1 day'": lambda: fpl(release_every="1 day"),
    "release_every='0d'": lambda: fpl(release_every="0d"),
    "horizon='36h': expected a number of periods": lambda: fpl(horizon="36h"),
    "horizon='10d'": lambda: fpl(release_every="manual"),
    "features=None": lambda: sp.Stream(fpl(), row_norm=1.0, start=START).push([0.1, 0.2]),
    "the rows of a block have no times": lambda: stream().leaves(),
    "there are no periods to close": lambda: sp.Stream(fpl(release_every=1, horizon=9), row_norm=1.0).tick(),
    "closes by the clock": lambda: stream().close_period(),
    "time, end: expected both": lambda: list(stream().run(ROWS, end=START)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_go_together_is_refused_and_named(message, clock):
    with pytest.raises(UsageError) as caught:
        REFUSED[message]()
    assert message in str(caught.value)


def test_a_copy_continues_with_the_open_period_and_noise_of_its_own(clock):
    run = stream(seed=None, key=bytes(32))
    run.push_many(ROWS[:5])
    clock.days = 1.5
    run.push_many(ROWS[5:9])
    twins = [copy.deepcopy(run), pickle.loads(pickle.dumps(run))]
    clock.days = 2.0
    for twin in (run, *twins):
        twin.tick()
        assert twin.admission.rows == 9
    assert len({twin.release.packed.tobytes() for twin in (run, *twins)}) == 3
    for twin in twins:
        # The same rows: half the noise at least is common to both, and sums of it are far below the sum of rows.
        np.testing.assert_array_equal(twin.regret.exact_gram(), run.regret.exact_gram())


def test_an_interrupt_leaves_the_stream_before_or_after_a_period(clock, monkeypatch):
    run = stream()
    run.push_many(ROWS[:6])
    clock.days = 3.5
    close, calls = periods.close, []

    def interrupted(*args, **more):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return close(*args, **more)

    monkeypatch.setattr(periods, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.push(ROWS[6])
    assert (run.t, run.admission.rows) == (1, 6)
    run.push(ROWS[6])
    whole = stream()
    clock.days = 0.0
    whole.push_many(ROWS[:6])
    clock.days = 3.5
    whole.push(ROWS[6])
    assert texts([run.release]) == texts([whole.release])
    assert (run.t, run.admission.rows) == (3, 7)


# -- durable streams ----------------------------------------------------------------------------


def arrivals(run, clock, first=0):
    """Feed the rows of ten days from row ``first`` on, by arrival; yield after each row."""
    for i in range(first, 120):
        clock.days = float(DAYS[i])
        run.push(ROWS[i])
        yield i


@pytest.mark.parametrize("every", [1, "1h"])
def test_a_resumed_stream_repeats_the_closings_of_its_log_at_any_kill(every, clock, tmp_path):
    whole = stream()
    expected = []
    for _ in arrivals(whole, clock):
        expected += [whole.release] if whole.release is not None and len(expected) < whole.t else []
    clock.days = 10.0
    expected.append(whole.tick().releases[0])
    for stop in (3, 12, 47, 48, 90):
        folder = tmp_path / str(stop)
        folder.mkdir()
        clock.days = 0.0
        store = Store(folder / "run.db", commit_every=every)
        run = stream(store=store)
        for i in arrivals(run, clock):
            if i == stop:
                break
        (store.flush if every == "1h" else lambda: None)()
        for file in list(folder.iterdir()):  # what a kill leaves
            shutil.copy(file, folder / f"copy-{file.name}")
        t = run.t
        with store:
            pass
        with Store(folder / "copy-run.db") as kept:
            twin = sp.Stream.resume(kept, moved=False)
            rows = twin.admission.rows
            assert rows == stop + 1
            assert twin.t == t
            for _ in arrivals(twin, clock, rows):
                pass
            clock.days = 10.0
            twin.tick()
            kept.flush()
            assert texts(kept.releases()) == texts(expected)


def test_resume_and_close_first_close_what_is_due(clock, tmp_path):
    with Store(tmp_path / "run.db") as store:
        run = stream(store=store)
        run.push_many(ROWS[:9])
        clock.days = 2.5
        run.close()
    with Store(tmp_path / "run.db") as store:
        clock.days = 4.5
        assert sp.Stream.resume(store).t == 4
        store.flush()
        assert [release.t for release in store.releases()] == [1, 2, 3, 4]


def test_a_store_with_rows_of_an_open_period_is_not_begun_anew(clock, tmp_path):
    with Store(tmp_path / "run.db") as store:
        stream(store=store).push(ROWS[0])
    with Store(tmp_path / "run.db") as store, pytest.raises(UsageError, match="Continue with Stream"):
        stream(store=store)


def test_a_file_continues_at_its_own_row(tmp_path):
    path = tmp_path / "rows.csv"
    table(DAYS).to_csv(path, index=False)
    rows = sp.sources.open_rows(path, columns=["a", "b", "c"], chunk_rows=7)
    expected = texts(step.release for step in stream(features=None).run(rows, time="at"))
    end = "2026-01-11T00:00+01:00"
    for stop in (1, 4, 9):
        with Store(tmp_path / f"{stop}.db", commit_every=1) as store:
            for _ in zip(range(stop), stream(features=None, store=store).run(rows, time="at", end=end), strict=False):
                pass
        with Store(tmp_path / f"{stop}.db") as store:
            resumed = sp.Stream.resume(store)
            list(resumed.run(rows, time="at", end=end))
            store.flush()
            assert texts(store.releases()) == expected
            assert resumed.admission.rows == 120


def test_a_source_begins_after_periods_without_rows(clock, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c\n0.1,0.2,0.3\n")
    with Store(tmp_path / "run.db") as store:
        run = stream(features=("a", "b", "c"), store=store)
        run.tick()
        clock.days = 1.5
        run.tick()
        list(run.run(NumberedRows(from_csv(path, columns="all"), "rows")))
        assert (run.t, run.admission.rows) == (1, 1)
    with Store(tmp_path / "run.db") as store:
        run = sp.Stream.resume(store)
        with path.open("a") as file:
            file.write("0.2,0.1,0.3\n")
        list(run.run(NumberedRows(from_csv(path, columns="all"), "rows")))
        assert run.admission.rows == 2


def test_no_release_before_the_first_period(clock):
    run = stream()
    run.push(ROWS[0])
    assert run.release is None
    with pytest.raises(NoReleaseError):
        run.regret.now()


# -- people ---------------------------------------------------------------------------------------

NAMES = [f"p{i % 9}" for i in range(120)]  # thirteen or fourteen rows each, over all days
PERSON = sp.Person(column="who")
IN_TWO_DAYS = sp.Person(column="who", period="2d")


def people_of(run):
    """The states of all people of a stream."""
    run.engine.budgets.enter(run.engine.now.people)
    return run.engine.budgets.states()


def algorithms(unit):
    return {
        "fpl": fpl(unit=unit),
        "ring": sp.SlidingWindowPCA(window="4d", n_components=1, epsilon=1.0, release_every="1d", unit=unit),
        "tumbling": sp.Tumbling(sp.GaussianCovariance(n_components=1, epsilon=1.0, unit=unit), release_every="1d"),
    }


@pytest.mark.parametrize("unit", [PERSON, IN_TWO_DAYS], ids=["person", "person in two days"])
@pytest.mark.parametrize("name", algorithms(None))
def test_rows_of_people_give_the_same_bits_one_by_one_in_blocks_and_by_their_times(name, unit, clock):
    algorithm = algorithms(unit)[name]
    one, many, dated = (stream(algorithm, features=("a", "b", "c")) for _ in range(3))
    single, blocks = [], []
    for day in range(10):
        clock.days = float(day)
        places = np.flatnonzero((day <= DAYS) & (day + 1 > DAYS))
        blocks.extend(many.push_many(ROWS[places], person=[NAMES[i] for i in places]).releases)
        for i in places:
            step = one.push(ROWS[i], person=NAMES[i])
            single.extend([step.release] if step.release is not None else [])
    clock.days = 10.0
    single.extend(one.tick().releases)
    blocks.extend(many.tick().releases)
    frame, end = table(DAYS).assign(who=NAMES), "2026-01-11T00:00+01:00"
    timed = [step.release for step in dated.run(frame, time="at", end=end)]
    assert len(single) == 10
    assert texts(single) == texts(blocks) == texts(timed)
    assert people_of(one) == people_of(many) == people_of(dated)
    assert bool(people_of(one)) is (unit is PERSON)  # five periods of two days are closed
    assert one.admission == many.admission == dated.admission
    assert one.guarantee.unit == unit.text + " from 1970-01-02 23:00 UTC" * (unit is IN_TWO_DAYS)
    assert one.guarantee.adjacency == "add-remove"


@pytest.mark.parametrize(("unit", "days"), [(PERSON, 10), (IN_TWO_DAYS, 2), (sp.Person(column="who", period="5d"), 5)])
def test_the_weights_of_a_person_are_those_of_her_periods(unit, days):
    # The exact sums are those of rows that were weighted with the product of the columns of their periods, as those of
    # other people in each period of the unit.
    algorithm = fpl(unit=unit, center=False)
    run = stream(algorithm, features=("a", "b", "c"))
    list(run.run(table(DAYS).assign(who=NAMES), time="at"))
    periods_of = [int(day) + 1 for day in DAYS]
    expected = np.zeros((3, 3))
    budgets, people = algorithm.budgets(bytes(32)), sp.Stream(algorithm, row_norm=1.0, start=START).engine.now.people
    admitted = run.engine.now.admission.block(ROWS, 1)[0]
    whose = [f"{name} {int(day) // days}".encode() for name, day in zip(NAMES, DAYS, strict=True)]
    weighted, people = budgets.weighted(people, admitted, whose, periods_of)
    expected = weighted.T @ weighted
    np.testing.assert_allclose(run.regret.exact_gram(), expected, atol=1e-12)
    assert days == 2 or np.trace(expected) < 0.98 * np.trace(admitted.T @ admitted)  # rows were shrunk
    seen = run.admission
    assert (seen.people, seen.people_spent, seen.rows_full) == people[1:4]


def test_budgets_end_in_the_commit_that_closes_their_period(clock, tmp_path):
    with Store(tmp_path / "run.db", commit_every=1) as store:
        run = stream(fpl(unit=IN_TWO_DAYS), store=store)
        for day in range(6):
            clock.days = day + 0.5
            run.push_many(ROWS[12 * day : 12 * day + 12], person=NAMES[:12])
            assert len(people_of(run)) == 9
            store.flush()
            clock.days = day + 1.0
            run.tick()
            left = 9 * ((day + 1) % 2)
            assert len(people_of(run)) == left  # dropped, before another row
            store.flush()
            with closing(sqlite3.connect(tmp_path / "run.db")) as database:
                assert database.execute("SELECT count(*) FROM people").fetchone() == (left,)
        assert run.admission.people == 27
        clock.days = 20.0  # no clock renews a budget on resume, which repeats the log
    with Store(tmp_path / "run.db") as store:
        run = sp.Stream.resume(store)
        assert people_of(run) == {}
        assert run.admission.people == 27
    twin = pickle.loads(pickle.dumps(stream(fpl(unit=IN_TWO_DAYS))))
    assert people_of(twin) == {}


def test_an_interrupt_at_a_closing_leaves_the_budgets_before_or_after(clock, monkeypatch):
    whole, seen = stream(fpl(unit=IN_TWO_DAYS)), []
    for run in (whole, *(stream(fpl(unit=IN_TWO_DAYS)) for _ in range(2))):
        clock.days = 1.5
        run.push_many(ROWS[:12], person=NAMES[:12])
        clock.days = 2.5
        if run is not whole:
            place = ("commit", "enter")[len(seen)]
            owner = type(run.engine) if place == "commit" else type(run.engine.budgets)
            with monkeypatch.context() as patch:
                patch.setattr(owner, place, interrupt)
                with pytest.raises(KeyboardInterrupt):
                    run.tick()
            seen.append(run.t)
        run.push_many(ROWS[12:24], person=NAMES[12:24])
        clock.days = 3.0
        run.tick()
        assert texts([run.release]) == texts([whole.release])
        assert people_of(run) == people_of(whole)
    assert seen == [1, 2]


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_the_norms_of_a_person_in_several_periods_add_up(p):
    # What all releases show of rows in p periods of 2 days is at most p, and more than the root of the sum of squares.
    mechanism = fpl(unit=IN_TWO_DAYS, center=False).mechanism
    encoder, whose = strategy(mechanism, 10), [b"she %d" % (i // 4) for i in range(4 * p)]
    inputs = [i // 2 + 1 for i in range(4 * p)]
    rows, _ = fpl(unit=PERSON, center=False).budgets(b"").weighted(NOBODY, np.ones((4 * p, 1)), whose, inputs)
    sums = np.bincount(np.array(inputs) - 1, rows[:, 0] ** 2, minlength=10)
    norm = float(np.linalg.norm(encoder @ sums)) / mechanism.mu
    assert norm <= p
    assert norm == pytest.approx(1.0, rel=1e-5) if p == 1 else norm > 1.05 * np.sqrt(p)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda unit: fpl(release_every=5, horizon=10, unit=unit), "release_every=5: .* Use release_every='2d'"),
        (lambda unit: fpl(release_every="manual", horizon=10, unit=unit), "release_every='manual': expected"),
        (lambda unit: fpl(release_every="3d", horizon="9d", unit=unit), "release_every='3d': .*a multiple"),
        (lambda unit: sp.PrivateOja(n_components=1, epsilon=1.0, unit=unit), "omit unit.period"),
        (lambda unit: sp.Tumbling(sp.GaussianCovariance(n_components=1, epsilon=1.0, unit=unit), release_every=5),
         "release_every=5"),
        (lambda unit: sp.pca(table(DAYS).assign(who=NAMES), 1, 1.0, bounds=dict.fromkeys("abc", (-1, 1)), unit=unit),
         "one release has no periods. Omit it"),
    ],
)  # fmt: skip
def test_a_period_of_the_unit_needs_a_calendar_that_divides_it(make, message):
    with pytest.raises(UsageError, match=rf"unit.period='2d'.*{message}"):
        make(IN_TWO_DAYS)


def test_the_absence_of_a_person_leaves_all_others_as_they_are():
    algorithm = fpl(unit=PERSON)
    frame = table(DAYS).assign(who=NAMES)
    whole, without = (stream(algorithm, features=("a", "b", "c"), seed=None, key=bytes(32)) for _ in range(2))
    steps = [list(run.run(rows, time="at")) for run, rows in ((whole, frame), (without, frame[frame.who != "p4"]))]
    assert [[step.t for step in some] for some in steps] == [list(range(1, 11))] * 2
    mine, others = people_of(whole), people_of(without)
    assert len(mine) == len(others) + 1
    assert others.items() <= mine.items()


@pytest.mark.parametrize("unit", [PERSON, IN_TWO_DAYS], ids=["person", "person in two days"])
def test_a_killed_run_of_people_continues_with_their_budgets(unit, clock, tmp_path):
    algorithm = fpl(unit=unit)
    whole = stream(algorithm)
    for i in range(110):
        clock.days = float(DAYS[i])
        whole.push(ROWS[i], person=NAMES[i])
    for stop in (5, 40, 77):
        folder = tmp_path / str(stop)
        folder.mkdir()
        clock.days = 0.0
        with Store(folder / "run.db", commit_every=1) as store:
            run = stream(algorithm, store=store)
            for i in range(stop):
                clock.days = float(DAYS[i])
                run.push(ROWS[i], person=NAMES[i])
            for file in list(folder.iterdir()):  # what a kill leaves
                shutil.copy(file, folder / f"copy-{file.name}")
        with Store(folder / "copy-run.db") as kept:
            twin = sp.Stream.resume(kept)
            assert twin.admission.rows == stop
            for i in range(stop, 110):
                clock.days = float(DAYS[i])
                twin.push(ROWS[i], person=NAMES[i])
            assert texts([twin.release]) == texts([whole.release])
            # Budgets have another key, so that ids differ, and states agree.
            assert sorted(people_of(twin).values()) == sorted(people_of(whole).values()) != []
            assert twin.admission == whole.admission


def test_rows_of_nobody_count_for_nothing():
    algorithm = fpl(unit=PERSON)
    frame = table(DAYS).assign(who=NAMES)
    nobody = frame.copy()
    nobody.loc[::10, "who"] = None
    run = stream(algorithm, features=("a", "b", "c"))
    expected = texts(step.release for step in run.run(frame[np.arange(120) % 10 != 0], time="at"))
    other = stream(algorithm, features=("a", "b", "c"))
    assert texts(step.release for step in other.run(nobody, time="at")) == expected
    assert other.admission.bad_rows == 12
    nobody.loc[60, "at"] = table([9.9]).at[0, "at"]  # from the future, before rows of nobody
    with pytest.raises(SourceError, match="out of order"):
        list(stream(algorithm, features=("a", "b", "c")).run(nobody, time="at"))
