"""Edit one record, run the table through a door, and compare all that can be read.

``python record_edits.py --edits 20000`` runs so many edits.

A case is a function of the seed and its number: the same door, table and edit whenever it is run. One of them:
``--case 1234``.
"""

import logging
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from blind import installed
from cyclopts import App
from doors import DOORS, EVERY, Door, Outcome
from edited import Edit, Table

from streampca.errors import BadRowError
from streampca.linalg.centering import JOINT_FACTOR
from streampca.linalg.lattice import BITS, UNIT_BITS
from streampca.linalg.svec import PRESENCE, upper


class Case(NamedTuple):
    """One edit through one door."""

    door: Door
    table: Table
    edit: Edit

    def __str__(self) -> str:
        edit = {name: value for name, value in vars(self.edit).items() if value}
        return (
            f"door:   {self.door.name}\nrecord: {self.edit.at + 1}, "
            f"{Edit(self.edit.at).texts(self.table)}\nedit:   {repr(edit)[:500]}"
        )


def drawn(seed: int, number: int, doors: Sequence[Door] = DOORS) -> Case:
    rng = random.Random(f"{seed}/{number}")
    door = rng.choices(doors, cum_weights=list(accumulate(door.weight for door in doors)))[0]
    table = door.tables[rng.choice(list(door.tables))]
    return Case(door, table, door.edits(rng))


def fault(case: Case, base: Outcome, found: Outcome) -> str | None:
    """What differs that must not, between a table and one whose record is edited; None if nothing does."""
    if base.problem is not None and case.door.is_refused:
        return _fault_of_refusal(case, base, found)
    if base.problem is not None:
        return f"a table that is not edited is refused: {base.problem}"
    if base.t != len(case.table.records):
        return f"{base.t} rows are seen of {len(case.table.records)} records, none of them edited"
    if isinstance(found.problem, BadRowError) and (case.edit.whole or case.edit.without or case.edit.extra):
        return _fault_of_error(case, base, found)
    if found.problem is not None:
        return f"{type(found.problem).__name__} is raised: {str(found.problem)[:300]}"
    if found.t != base.t:
        return f"t is {found.t} in place of {base.t}"
    if found.code != base.code:
        return f"the exit status is {found.code} in place of {base.code}: {found.said}"[:500]
    if found.releases != base.releases:
        return f"releases differ: {_difference(base.releases, found.releases)}"
    if found.said != base.said:
        return f"what is said differs: {_difference(base.said, found.said)}"
    return _fault_of_rows(case, base, found)


def _fault_of_refusal(case: Case, base: Outcome, found: Outcome) -> str | None:
    if type(found.problem) is not type(base.problem) or found.t or base.t:
        return f"refused as {base.problem!r}, its neighbor: {found.problem!r}, {found.t} rows"
    cells = {*case.table.records[case.edit.at], *case.edit.texts(case.table)}
    quoted = [cell for cell in cells if len(cell) > 3 and (cell in str(base.problem)) != (cell in str(found.problem))]
    return f"the refusal quotes the record: {found.problem}" if quoted else None


def _fault_of_error(case: Case, base: Outcome, found: Outcome) -> str | None:
    """What differs before a record of another shape, which is public and refused."""
    at = case.edit.at
    if found.t > at:
        return f"{found.t} rows are seen, and {at} records lie before the bad one"
    rows = found.rows
    compared = rows is not None and base.rows is not None and rows.size > 0
    if compared and (len(rows) > at or not np.array_equal(rows, base.rows[: len(rows)])):
        return "rows before the bad one differ"
    if found.releases != base.releases[: len(found.releases)] or len(found.releases) > at // EVERY:
        return "releases before the bad row differ"
    return None


def _fault_of_rows(case: Case, base: Outcome, found: Outcome) -> str | None:
    """One row at most differs, by what the noise is calibrated for, and the exact sums differ by that row."""
    change, rows = None, base.rows
    if base.gram is not None and found.gram is not None:
        high, low = (part - before for part, before in zip(found.gram, base.gram, strict=True))
        change = (high << UNIT_BITS) + low
        if _norm(change) > _most(change, replaced=True):
            return f"the exact sums differ by {_norm(change):.4g} in Frobenius norm"
    if rows is None or found.rows is None:
        return None if change is not None else "nothing of the rows was watched"
    if rows.shape != found.rows.shape:
        return f"{found.rows.shape} rows are absorbed in place of {rows.shape}"
    others = np.flatnonzero((rows != found.rows).any(axis=1))
    if others.size and others.tolist() != [case.edit.at]:
        return f"rows {(others + 1).tolist()} differ, and record {case.edit.at + 1} was edited"
    one, other = (_square(part[case.edit.at]) for part in (found.rows, rows))
    if change is not None and not np.array_equal(change, one - other):
        return "the exact sums differ by something else than the edited row"
    if _norm(one) > _most(one, replaced=False):  # against an absent row
        return "the edited row is longer than row_norm"
    return None


#: Of three columns: the longer row with the cells that are present, and the size of its sums.
_WIDE, _SUMS = 7, 13


def _square(row: np.ndarray) -> np.ndarray:
    row, cells = (row[:4], row[4:]) if row.size == _WIDE else (row, row[:0])
    units = np.rint(row * 2.0**BITS).astype(np.int64)
    return np.append(np.outer(units, units).take(upper(row.size)), cells.astype(np.int64) << UNIT_BITS)


@cache
def _weights(size: int) -> np.ndarray:
    further = 3 * (size == _SUMS)
    width = int((2 * (size - further)) ** 0.5)
    weights = np.where(np.equal(*np.triu_indices(width)), 1.0, 2.0)
    return np.append(weights, np.full(further, PRESENCE / 3)) * 2.0 ** (-2 * UNIT_BITS)


def _norm(packed: np.ndarray) -> float:
    return float(_weights(packed.size) @ packed.astype(np.float64) ** 2) ** 0.5


def _most(packed: np.ndarray, *, replaced: bool) -> float:
    plain = (2.0 if replaced else 1.0) * (JOINT_FACTOR**2 if packed.size > 6 else 1.0)
    return (plain + PRESENCE * (packed.size == _SUMS)) ** 0.5 * (1.0 + 1e-12)


def _difference(before: Any, after: Any) -> str:
    for one, other in zip(before, after, strict=False):
        if one != other:
            texts = repr(one), repr(other)
            at = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
            return " / ".join(text[max(0, at - 60) : at + 60] for text in texts)
    return f"{len(before)} / {len(after)}"


def attacked(
    seed: int, numbers: Sequence[int], doors: Sequence[Door] = DOORS, most: int = 5
) -> tuple[Counter[str], list[tuple[int, Case, str]]]:
    """Run cases; return how many went through each door, and at most ``most`` violations."""
    counts: Counter[str] = Counter()
    bases: dict[tuple[str, Table], Outcome] = {}  # of tables that are not edited
    violations: list[tuple[int, Case, str]] = []
    with tempfile.TemporaryDirectory() as folder, installed():
        for number in numbers:
            case = drawn(seed, number, doors)
            key = case.door.name, case.table
            counts[case.door.name] += 1
            if key not in bases:
                bases[key] = case.door.observe(Path(folder), case.table, None)
            found = case.door.observe(Path(folder), case.table, case.edit)
            if (problem := fault(case, bases[key], found)) is not None:
                violations.append((number, case, problem))
                if len(violations) >= most:
                    break
    return counts, violations


def report(seed: int, violations: list[tuple[int, Case, str]]) -> str:
    return "\n\n".join(
        f"VIOLATION: {problem}\n{case}\nagain:  python tests/neighbours/record_edits.py --seed {seed} --case {number}"
        for number, case, problem in violations
    )


def main(*, edits: int = 20_000, seed: int = 0, case: int | None = None, door: str = "") -> int:
    """Run so many edits, or one case, through the doors whose name matches."""
    logging.getLogger("streampca.curator").addHandler(logging.NullHandler())  # thousands of lines
    doors = [one for one in DOORS if re.search(door, one.name)]
    began = time.process_time()
    counts, violations = attacked(seed, range(edits) if case is None else [case], doors)
    for name, count in counts.most_common():
        print(f"{count:8d}  {name}")
    print(f"{counts.total()} edits, {len(violations)} violations, {time.process_time() - began:.0f} s of CPU")
    if violations:
        print(report(seed, violations))
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(App(default_command=main, help=__doc__, help_format="plaintext", result_action="return_value")())
