"""Cases at the edges: resumed runs, both sides of every decision, names and ledgers."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import streampca as sp
from planted.fixed_cases import BUDGET, DELTA, EPSILON, FPL, LARGE, OJA, add
from planted.lifecycles import CASES, plain_changes
from streampca.auditing.laws import Law, Loss, correlated
from streampca.auditing.needs import Pairs, absent, her_absence
from streampca.auditing.runs import HERS, Row, feed_calendar, feed_mechanism, feed_stream, names_of, released
from streampca.errors import StreamPCAError
from streampca.linalg.types import FloatArray

__all__ = ["CASES"]

# -- resumed runs -----------------------------------------------------------------------------------


def resumed(name: str, how: str, **changes: Any) -> None:
    CASES[f"resumed-{name}"] = replace(CASES[name], name=f"resumed-{name}", feeds=(f"resumed {how}",), **changes)


for _name in ("PrivateFPL-tree", "PrivateFPL-rewards", "PrivateFPL-smoothed"):
    resumed(_name, "4 9")
for _method in ("histogram", "ring", "forgetting"):
    resumed(f"SlidingWindowPCA-{_method}", "5 6")
resumed("DPPCA", "333 690", positions=lambda subject: (*CASES["DPPCA"].positions_of(subject), 685))
add("resumed-PrivateOja", OJA, batch_size=4, d=6, feeds=("resumed 2 7",), positions=(0, 1, 4, 6, 11))

# -- both sides of a decision ---------------------------------------------------------------------------

_COLUMNS, _WARM = 40, 50


def _warm_rows(many: int, some: int) -> FloatArray:
    rows = np.zeros((_WARM + 2, _COLUMNS))
    rows[: many + some], rows[many : many + some, :7] = 0.75, 0.75 * 2.0**-10
    rows[many + some : many + some + 5] = 0.75 * 2.0**-20
    return rows


def _votes_more(subject: Any, d: int) -> Pairs:
    bins = {"a popular bin": 0.75, "a bin at the edge": 0.75 * 2.0**-20, "a bin of few columns": 0.75 * 2.0**-10}
    return {
        f"{name} against none ({i})": (np.full(d, value), np.zeros(d)) for name, value in bins.items() for i in range(3)
    }


# The noise of a count has a standard deviation of 1.16. A bin shows beyond 4.7 of them, 5.5 votes, and in all columns
# together beyond 29 votes; then it counts from 3.5 votes on in a column of which the bins shown hold less than 45, nine
# tenths of the warm-up. They hold 44 here, which is nine tenths of those that vote, too.
_warm: dict[str, Any] = {"plain": _warm_rows(44, 0), "busy": _warm_rows(40, 4), "rows": _WARM + 2, "horizon": _WARM + 2}
add("edge-private-bounds", FPL, epsilon=40.0, delta=1e-6, n_components=1, d=_COLUMNS, **_warm,
    feed=partial(feed_stream, bounds="private", warmup=_WARM), feeds=("many",), checks="leak", changes=_votes_more,
    positions=(0, 46, _WARM - 1))  # fmt: skip

#: Rows at which the histogram of norms is just worth its noise.
_FEW = 25


def _nothing(subject: Any, d: int) -> Pairs:
    return {f"a row of norm {norm}": (np.zeros(d), norm * np.eye(d)[0]) for norm in (1.0, 2.0**-6)}


for _adjacency, _suffix in (("zero-out", ""), ("replace", "-replace")):
    add(f"edge-adaptive-laplace{_suffix}", sp.AdaptiveLaplaceCovariance, n_components=1, center=False,
        epsilon=500.0 / _FEW, adjacency=_adjacency, d=6, rows=_FEW, busy=2.0**-6 * np.tile(np.eye(6)[0], (_FEW, 1)),
        changes=_nothing, feed=feed_mechanism, feeds=("once",), checks="leak")  # fmt: skip

_two_norms = np.concatenate([np.tile(2.0**-6 * np.eye(6)[0], (30, 1)), np.tile(2.0**-5 * np.eye(6)[1], (12, 1))])
add("edge-adaptive", sp.AdaptiveCovariance, n_components=1, center=False, **LARGE, d=6, rows=42, busy=_two_norms,
    changes=lambda subject, d: {"a row of the longer ones": (np.zeros(d), 2.0**-5 * np.eye(d)[1])}, feeds=("once",),
    feed=feed_mechanism, checks="leak")  # fmt: skip

# Popular cells and bins: half of all votes each, so that one vote decides which has more.
_cells = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [4, 76, 76], axis=0)
add("edge-cells", sp.papers.ApproximateSubspace, epsilon=5.0, delta=1e-6, block_rows=4, d=2, rows=156,
    changes=CASES["ApproximateSubspace"].changes, busy=_cells, feed=feed_mechanism, feeds=("once",), positions=(0,),
    widths=(0.5, 0.25), checks="leak")  # fmt: skip

# Rows of norm 1 in one direction pass the guess of OPT after some of them.
add("edge-doubling", sp.papers.DoublingFPL, n_components=1, **BUDGET, release_every=1, horizon=60, rows=60, d=3,
    busy=np.tile(np.eye(3)[0], (60, 1)), changes=_nothing, checks="leak")  # fmt: skip

# -- names -----------------------------------------------------------------------------------------------


def _named_by_a_row(subject: Any, rows: list[Row], how: str) -> list[Any]:
    stream = sp.Stream(subject, row_norm=1.0, regret=None)
    try:
        out: list[Any] = released(*(stream.push(row) for row in rows))
    except StreamPCAError as problem:
        out = [f"{type(problem).__name__}: {problem}"]
    return [*out, f"features {stream.features}"]


def _other_names(subject: Any, d: int) -> Pairs:
    row = {f"x{i}": 0.5 for i in range(d)}
    return {"another name": (row, {**row, f"x{d - 1}": 0.5} | {"of a person": 1.0})}


def _plain_mappings(rows: int, d: int) -> Any:
    return np.array([{f"x{i}": 0.0 for i in range(d)}] * rows, dtype=object)


add("names", FPL, n_components=1, feed=_named_by_a_row, d=3, rows=4, horizon=4, checks="leak", feeds=("mappings",),
    changes=_other_names, plain=_plain_mappings(4, 3), busy=_plain_mappings(4, 3), positions=(0, 2))  # fmt: skip

# -- what is said, and what is paid ------------------------------------------------------------------------


def _watched(subject: Any, rows: list[Row], how: str) -> list[Any]:
    stream = sp.Stream(subject, row_norm=1.0, features=names_of(rows))
    out: list[Any] = released(*(stream.push(row) for row in rows[:6]))
    return [*out, *stream.push_many(np.array(rows[6:])).releases, stream]


add("watched", FPL, d=6, feed=_watched, feeds=("both",), changes=plain_changes)


def _paid(budget: Any, runs: Any) -> Any:
    def feed(subject: Any, rows: list[Row], how: str) -> list[Any]:
        out = list[Any]()
        with TemporaryDirectory() as folder, sp.Ledger(Path(folder, "ledger.db")) as ledger:
            ledger.set_budget("rows", sp.Budget(EPSILON, DELTA), unit=budget(subject).guarantee.unit)
            for one in runs(subject):
                try:
                    out += _run_of(one, rows, ledger.account("rows"))
                except StreamPCAError as problem:
                    out.append(type(problem).__name__)
            return [*out, f"{ledger.balance('rows').spent:.9g}"]

    return feed


def _run_of(subject: Any, rows: list[Row], account: Any) -> list[Any]:
    people = {"person": ["she" if i < 3 else f"person {i}" for i in range(len(rows))]} if subject.unit else {}
    stream = sp.Stream(subject, row_norm=1.0, regret=None, account=account)
    return stream.push_many(np.array(rows), **people).releases


def _for_rows(subject: Any) -> Any:
    return replace(subject, unit=None)


def _for_people(subject: Any) -> Any:
    return subject


def _of_paid(budget: Any) -> Any:
    def law(subject: Any, kind: str) -> Law:
        mechanism = budget(subject).mechanism
        lawful = correlated(mechanism.reconstruction)

        def loss(notes: Any, others: Any, claim: Any) -> Loss:
            if notes[0].std != mechanism.std_chunks.at(1):
                return Loss(math.inf, {}, "the budget paid for a run for other neighbors")
            return lawful.loss(notes, others, claim)

        return Law(lawful.standard, loss)

    return law


for _name, _budget, _runs, _span in (
    ("ledger-of-rows", _for_rows, lambda subject: (subject, _for_rows(subject)), 1),
    ("ledger-of-people", _for_people, lambda subject: (_for_rows(subject), subject), 3),
):
    add(_name, FPL, unit=sp.Person(budget=2.0), horizon=4, rows=4, d=6, feed=_paid(_budget, _runs),
        law=_of_paid(_budget), feeds=("once",), span=_span, positions=(0,), changes=plain_changes, cost=4.0,
        guarantee=lambda subject, budget=_budget: budget(subject).guarantee)  # fmt: skip

# -- calendars ---------------------------------------------------------------------------------------------

# The last of six periods has one row, so that it is empty in one of two neighbors.
_days: dict[str, Any] = {
    "horizon": "6d", "release_every": "1d", "rows": 11, "d": 8, "feed": feed_calendar, "changes": absent,
    "feeds": ("push", "many", "timed", "resumed"),
}  # fmt: skip
add("calendar", FPL, center=True, **_days)
add("calendar-about-zero", FPL, **_days)
# Rows of a person in several periods spend her budget together.
_hers: dict[str, Any] = {"unit": sp.Person(column="who"), "changes": her_absence, "span": HERS, "positions": (0,)}
add("person-day", FPL, center=True, **{**_days, **_hers})
# Rows of a person in one period of two days; those after it are hers, too, and have a budget of their own.
_anew = {**_hers, "unit": sp.Person(column="who", period="2d"), "span": 4}
add("person-period", FPL, center=True, **{**_days, **_anew})
