"""No edit of one record shows anywhere but through noise, and the harness finds the holes that there were.

Two hundred edits here; CI runs 20 000 more by ``record_edits.py``, and ``pytest -m long tests/neighbours`` a million.
"""

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from doors import DOORS, Door
from edited import TABLES, Edit
from record_edits import attacked, report

from streampca.privacy.outlet import Outlet
from streampca.rows import admission
from streampca.sources import base, csv_rows, databases, records, text_files
from streampca.stream.engine import Engine
from streampca.stream.stream import Stream


def doors(*names: str) -> list[Door]:
    return [door for door in DOORS if door.name.startswith(names)]


@pytest.mark.parametrize("shard", range(4))
def test_an_edit_shows_nowhere(shard: int) -> None:
    counts, violations = attacked(1, range(shard, 200, 4))
    assert not violations, report(1, violations)
    assert counts.total() == 50


@pytest.mark.long
@pytest.mark.parametrize("shard", range(50))
def test_a_million_edits_show_nowhere(shard: int) -> None:
    counts, violations = attacked(2, range(shard, 10**6, 50))
    assert not violations, report(2, violations)
    assert counts.total() == 20_000


@pytest.mark.parametrize("part", range(4))
def test_every_door_is_tried(part: int) -> None:
    for door in DOORS[part::4]:
        _, violations = attacked(4, range(1), [door])
        assert not violations, report(4, violations)


def found(planted: list[Door], edits: int = 400) -> str:
    _, violations = attacked(3, range(edits), planted, most=1)
    assert violations, "nothing was found"
    return report(3, violations)


def test_lines_of_a_quoted_cell_that_become_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 500 lines in an unselected cell, t was 601 for 101, and the trace 505 where the sensitivity is 1."""
    parser = csv_rows.CellParser
    monkeypatch.setattr(csv_rows, "CellParser", lambda *given, **_: parser(*given, quotes=False))
    whole, text = text_files.TextRows.whole_records, text_files.TextRows
    monkeypatch.setattr(text, "whole_records", lambda self, blocks, _, **how: whole(self, blocks, **how))
    monkeypatch.setattr(csv_rows, "split_records", lambda text, _: records.split_records(text, None))
    plain = {"plain": TABLES["plain"]}
    lines = Edit(10, {"note": "1,0,z\n" * 500})
    door = doors("CSV, bytes, run")[0]._replace(tables=plain, edits=lambda rng: lines)
    message = found([door], edits=1)
    assert "t is 512 in place of 12" in message
    assert "record: 11" in message
    drawn = [door._replace(tables=plain) for door in doors("CSV, bytes, run", "CSV, all quoted, dribble307")]
    assert "in place of" in found(drawn)


def _quoting(names: Any, where: str, *_: object) -> None:
    raise base.SourceError(where, f"{list(names)} look like a row")


def _finite_blocks(real: Any) -> Any:
    return lambda self: (rows[np.isfinite(rows).all(axis=1)] for rows in real(self))


def _finite_values(real: Any) -> Any:
    def all_values(self: Any, *given: Any) -> np.ndarray:
        rows = real(self, *given)
        return rows[np.isfinite(np.asarray(rows, float)).all(axis=1)]

    return all_values


def _neighbor_too(real: Any) -> Any:
    def block(self: Any, rows: np.ndarray, number: int) -> Any:
        bad = ~np.isfinite(rows).all(axis=1)
        return real(self, np.where(np.roll(bad, 1)[:, None], np.nan, rows), number)

    return block


def _too_long(rows: np.ndarray) -> Any:
    rows = np.trunc(np.clip(rows, -4.0, 4.0) * 2.0**20) / 2.0**20
    return rows, (rows**2).sum(axis=1), np.empty(0, int)


def _warned(real: Any) -> Any:
    def push_many(self: Stream, rows: Any, **options: Any) -> Any:
        made = real(self, rows, **options)
        if self.admission.bad_rows:
            warnings.warn("rows were bad", UserWarning, stacklevel=2)
        return made

    return push_many


def _counted(real: Any) -> Any:
    def following(self: Engine, now: Any, count: int, counts: Any, after: Any, release: Any, sums: Any) -> Any:
        if release is not None:  # an exact value that reaches a release beside the outlet
            release._details["bad"] = now.counts.plus(counts).bad
        return real(self, now, count, counts, after, release, sums)

    return following


def _as_numbers(page: Any) -> np.ndarray:
    return np.array([[float(one) for one in row] for row in page])


#: What is replaced, and by what; in which doors; what is reported.
HOLES: dict[str, tuple[Any, str, Callable[[Any], Any], str, str]] = {
    "values of the first person become names": (
        base, "refuse_values", lambda real: lambda *_: None, "CSV, headless",
        "11 rows are seen of 12 records, none of them edited"),
    "a refusal quotes the first person": (
        base, "refuse_values", lambda real: _quoting, "CSV, headless", "quotes the record"),
    "a bad row is dropped": (text_files.TextRows, "blocks", _finite_blocks, "CSV, bytes, run", "t is "),
    "a bad row in memory is dropped": (admission.Admission, "all_values", _finite_values, "list, push_many", "t is "),
    "a bad row takes its neighbor along": (admission.Admission, "block", _neighbor_too, "array, push", "and record"),
    "a row is too long": (
        admission, "admitted_rows", lambda real: _too_long, "array, push",
        "longer than row_norm|in Frobenius norm"),
    "a warning of a bad row": (Stream, "push_many", _warned, "array, push", "what is said differs"),
    "noise leaves a row in the clear": (Engine, "following", _counted, "array, push", "differ"),
    # Text beside bytes in a page ended the run.
    "an error of another library": (databases, "as_rows", lambda real: _as_numbers, "SQLite", "is raised"),
}  # fmt: skip


@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_is_found(hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, made, where, reported = HOLES[hole]
    monkeypatch.setattr(owner, name, made(vars(owner)[name]))
    # Every bad row of this table is the edited one.
    plain = {"tables": {"plain": TABLES["plain"]}} if where.startswith("CSV, bytes") else {}
    assert re.search(reported, found([door._replace(**plain) for door in doors(where)], edits=1000))


def test_the_outlets_are_blind_only_while_an_attack_runs() -> None:
    before = Outlet.hide, Outlet.running, Outlet.release
    attacked(1, range(3))
    assert (Outlet.hide, Outlet.running, Outlet.release) == before
