"""Tables, edits of one record of them, and the ways in which a writer writes them."""

import csv
import datetime
import decimal
import fractions
import io
import json
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

#: Columns of every table, and those that streams read, in their order.
NAMES = ("name", "a", "note", "b", "when", "c")
CHOSEN = ("c", "a", "b")
ROWS = 12


@dataclass(frozen=True)
class Table:
    """Records of text."""

    records: tuple[tuple[str, ...], ...]

    def number(self, at: int, name: str) -> float:
        return float(self.records[at][NAMES.index(name)])


@dataclass(frozen=True)
class Edit:
    """New contents of one record."""

    at: int  # place of the record, from 0
    cells: Mapping[str, Any] = field(default_factory=dict)  # by column: text for text files, anything for objects
    without: tuple[str, ...] = ()  # columns that the record lacks
    extra: tuple[Any, ...] = ()  # contents behind the last one, or under new names
    whole: tuple[Any, ...] = ()  # in place of all this: a line, or any object

    def mapping(self, table: Table) -> dict[str, Any]:
        record = {
            name: self.cells.get(name, table.number(self.at, name) if name in CHOSEN else text)
            for name, text in zip(NAMES, table.records[self.at], strict=True)
            if name not in self.without
        }
        return record | {f"extra{i}": content for i, content in enumerate(self.extra)}

    def texts(self, table: Table) -> list[str]:
        texts = [str(self.cells.get(name, text)) for name, text in zip(NAMES, table.records[self.at], strict=True)]
        return [text for name, text in zip(NAMES, texts, strict=True) if name not in self.without] + list(
            map(str, self.extra)
        )


_PLAIN = ("ada", "bob", "carl", "dora", "eve")
_QUOTED = ('say "hi"', "1,0,2", "two\nlines", "a\r\nb", '"', "", "x;y", "tab\there", "\u2028", "'", "1", "naïve")
#: Cells that are no numbers, in other records than the edited one.
_ODD = ("", "NA", "x", "1_000", "inf", '"2"', " 3 ", "1e5", "-", "nan", "0x10", "1,5", "5%")


def table(seed: int, notes: Sequence[str] = _PLAIN, odd: Sequence[str] = ()) -> Table:
    rng = random.Random(seed)
    records = []
    for at in range(ROWS):
        texts = {name: rng.choice(notes) for name in NAMES}
        texts |= {name: repr(round(rng.gauss(0.0, 0.5), 4)) for name in CHOSEN}
        texts["when"] = f"2024-01-{at + 1:02d}T00:00:00"
        if odd and at % 3 == 1:
            texts[rng.choice(CHOSEN)] = rng.choice(odd)
        records.append(tuple(texts[name] for name in NAMES))
    return Table(tuple(records))


TABLES = {"plain": table(1), "quoted": table(2, _QUOTED), "odd": table(3, _QUOTED, _ODD)}
#: Of lines, which cannot hold a line end.
_LINES = tuple(text.replace("\n", " ") for text in _QUOTED)
LINE_TABLES = {
    "plain": table(1),
    "quoted": table(4, [text for text in _LINES if "," not in text]),
    "odd": table(5, _LINES, _ODD),
}


#: Contents that were, or might be, more than a cell.
TEXTS = (
    "", " ", "x", "0", "-0.0", "1", "1e999", "-1e999", "1e-400", "1e308", "inf", "-Infinity", "nan", "-NaN", "NA",
    "null", "None", "?", "1_000", "0x1p3", "1,5", "1;5", "1\t5", "1|5", " 3 ", "+1", "1e5", "\uff11\uff12",
    "\u0661\u0662", "True", "1\x002", "\0", "\ufeff", "\ufeff1", "\u2028", "1\u2028", "1\u2029", "\x0b", "1\x0b",
    "1\x0c", "\x851", "\x1c1", "1\x1e", "\n", "\r", "\r\n", "1\n", "1\r", "1\r\n", "\n1", "\r1", "1\n2", "1\r2,3",
    '"', '""', '"1"', '"1', '1"', '"\n', '",', ',"', '\n"', '"\n"', '"x""y"', "'", "\\", '\\"', "\\\n", "#", "# 1",
    "a,b,c", "name,a,note,b,when,c", ",", ",,,,,", "1,0,z\n" * 500, '1,0,"z\n' * 50, "\n" * 300, "\r\n" * 300,
    "2024-01-01", "2024-01-01T00:00:00Z", "12:00", "=1+1", "\udcff", "\udc80\udcfe", "\udcff\udcfe", "\ud800",
    "\x1f\udc8b", "PK\x03\x04", "%PDF", "1" * 400, "0" * 5000 + "1", "1" + "0" * 330, "x" * 131_071, "1" * 131_073,
    "{}", "[", "[" * 400, '{"a": 1}', "\U0001f600", "e\u0301", "\x7f", "\x1b[31m", "1\x1a",
)  # fmt: skip
_LONG = ("1", "x", '"', "\n", "\r\n", "1,0,z\n", ",", "\0", "\u2028", "\udcff", '"\n', "0.1,")
_ALPHABET = "\"\n\r,;\t|\0 01.-e\ufeff\u2028\x0b\x85\udcff\udc80aN\\'[{:}]"


def text(rng: random.Random) -> str:
    dice = rng.random()
    if dice < 0.002:
        piece = rng.choice(_LONG)
        return piece * (10**6 // len(piece))
    if dice < 0.45:
        return rng.choice(TEXTS)
    if dice < 0.55:
        return repr(rng.gauss(0.0, 1.0) * 10.0 ** rng.randint(-20, 20))
    return "".join(rng.choices(_ALPHABET, k=rng.randint(1, 12)))


#: Values of a JSON object, as they stand in the line.
JSON = (
    "null", "true", "false", "0", "-0", "1", "1e999", "NaN", "-Infinity", "1" + "0" * 400, "1" * 5000, '""', '"x"',
    '"1"', '"NA"', '" 2 "', "[]", "[1]", "{}", '{"a": 1}', "1_000", "0x10", "012", "+1", ".5", "1.", "'x'", "",
    '"\\ud800"', '"\u2028"', '"\x0b"', '"\0"', '"\t"', '"\\u0000"', '"2024-01-01"', '"1,0,z\\n1,0,z"', "1 2", "1, 2",
    '1, "b": 2', '1}', '1, "a": 7, "a": 8', "[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300,
    '"' + "x" * 200_000 + '"',
)  # fmt: skip
#: Values of records that are Python objects.
OBJECTS = (
    None, True, False, 0, 1, -1, 10**400, -(10**400), 2**53 + 1, 1.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"),
    -float("inf"), "", "x", "1", " 2 ", "NA", "nan", "1_000", "1" * 5000, "x" * 10**5, b"", b"1", b"\xff", 1j, 1 + 0j,
    decimal.Decimal("1.5"), decimal.Decimal("NaN"), decimal.Decimal("sNaN"), decimal.Decimal("1e999999"),
    fractions.Fraction(1, 3), fractions.Fraction(10**400), datetime.date(2024, 1, 1), datetime.timedelta(1),
    datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), datetime.time(12), [], [1], [[1]], (), (1,), {}, {"a": 1}, {1},
    np.float32(1.5), np.float16(1.5), np.longdouble(1.5), np.longdouble("1e4000"), np.complex128(1 + 2j), np.int8(3),
    np.uint64(2**64 - 1), np.bool_(True), np.str_("x"), np.bytes_(b"1"), np.datetime64("2024-01-01"),
    np.timedelta64(1, "D"), np.datetime64("NaT", "D"), np.array(1.5), np.array([1.5]), np.array([1.0, 2.0]),
    np.array("x"), np.array(1j), np.array(None), np.datetime64("2024-01-01", "ns"),
    np.array([[1.0]]), np.array([]), np.ma.masked, np.ma.array([1.0], mask=[True]), np.ma.array(1.0, mask=True), pd.NA,
    pd.NaT, pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-01", tz="UTC"), pd.Timedelta(1), pd.Interval(0, 1),
    uuid.UUID(int=1), object, len, ..., NotImplemented, range(3), iter([1]), memoryview(b"1"),
)  # fmt: skip
#: What a typed column of floats can hold; the rest goes into columns of text.
FLOATS = (None, float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e308, -1e308, 5e-324, 1e155, 2.0, 0.125)
#: What an SQLite column can hold: its types are those of values, not of columns.
CELLS = (
    *FLOATS, 1, 2**63 - 1, -(2**63), "", "x", "1", " 2 ", "1_000", "nan", b"", b"1", b"\xff", "x" * 10**5, "\0", "1\n2",
)  # fmt: skip
#: In place of a whole record.
WHOLES = (
    None, "", "text", b"bytes", 7, 1.5, [], [1.0], [1.0, 2.0, 3.0, 4.0], [[1.0, 2.0, 3.0]], ["x"] * 3, (), {}, {"a": 1},
    set(), {1.0, 2.0, 3.0}, object(), np.float64(1.0), np.array(1.0), np.zeros((1, 3)), np.zeros((2, 3)), np.zeros(0),
    np.array(["x", "y", "z"]), np.zeros(3, dtype="M8[s]"), np.zeros(3, dtype=complex), np.ma.masked_all(3),
    pd.Series([1.0, 2.0, 3.0]), pd.Series({"c": 1.0, "a": "x", "b": 2.0}), pd.Series(dtype=float), range(3), ...,
)  # fmt: skip


def _cells(rng: random.Random, draw: Any) -> dict[str, Any]:
    return {name: draw(rng) for name in rng.sample(NAMES, 1 if rng.random() < 0.8 else rng.randint(2, len(NAMES)))}


def encodable(content: Any) -> Any:
    return content.encode("utf-8", "replace").decode() if isinstance(content, str) else content


def any_float(rng: random.Random) -> Any:
    return rng.choice(FLOATS) if rng.random() < 0.7 else rng.gauss(0.0, 1.0) * 10.0 ** rng.randint(-9, 9)


def any_object(rng: random.Random) -> Any:
    return rng.choice(OBJECTS) if rng.random() < 0.7 else text(rng) if rng.random() < 0.5 else any_float(rng)


def any_cell(rng: random.Random) -> Any:
    return rng.choice(CELLS) if rng.random() < 0.7 else text(rng)


def of_zero(rng: random.Random, content: Any) -> dict[str, Any]:
    return dict.fromkeys(CHOSEN if rng.random() < 0.5 else NAMES, content)


def place(rng: random.Random) -> int:
    return rng.choice([0, 0, ROWS - 1, *range(ROWS)])


def edit_of_text(rng: random.Random) -> Edit:
    at, dice = place(rng), rng.random()
    if dice < 0.05:
        return Edit(at, of_zero(rng, rng.choice(["0", "", "NA", "0.0"])))
    if dice < 0.1:
        return Edit(
            at, _cells(rng, text), tuple(rng.sample(NAMES, rng.randint(0, 5))), (text(rng),) * rng.randint(0, 9)
        )
    return Edit(at, _cells(rng, text))


def edit_of_line(rng: random.Random) -> Edit:
    if rng.random() < 0.5:
        bytes_ = encoded("".join(text(rng) + rng.choice([",", ""]) for _ in range(rng.randint(1, 7))), "utf-8")
        return Edit(place(rng), whole=(bytes_.replace(b"\n", b""),))
    edit = edit_of_text(rng)
    line = {name: content.replace("\n", "") for name, content in edit.cells.items()}
    return replace(edit, cells=line, extra=tuple(content.replace("\n", "") for content in edit.extra))


def edit_of_json(rng: random.Random) -> Edit:
    if rng.random() < 0.3:
        return edit_of_line(rng)

    def value(rng: random.Random) -> str:
        if rng.random() < 0.7:
            return rng.choice(JSON)
        return json.dumps(text(rng), ensure_ascii=rng.random() < 0.5)

    without = tuple(rng.sample(NAMES, rng.randint(1, 5))) if rng.random() < 0.1 else ()
    return Edit(place(rng), _cells(rng, value), without, (value(rng),) * (rng.random() < 0.1))


def edit_of_object(rng: random.Random) -> Edit:
    at, dice = place(rng), rng.random()
    if dice < 0.1:
        return Edit(at, whole=(rng.choice(WHOLES),))
    if dice < 0.15:
        return Edit(at, of_zero(rng, rng.choice([0.0, None, float("nan")])))
    if dice < 0.2:
        return Edit(at, {}, tuple(rng.sample(NAMES, rng.randint(0, 6))), (any_object(rng),) * rng.randint(0, 2))
    return Edit(at, _cells(rng, any_object))


def edit_of_floats(rng: random.Random) -> Edit:
    if rng.random() < 0.1:
        return Edit(place(rng), dict.fromkeys(CHOSEN, rng.choice([0.0, None])))
    names = rng.sample(CHOSEN, rng.randint(1, 3))
    cells: dict[str, Any] = {name: any_float(rng) for name in names}
    if rng.random() < 0.3:
        cells["note"] = encodable(text(rng))
    return Edit(place(rng), cells)


def edit_of_cells(rng: random.Random) -> Edit:
    return Edit(place(rng), _cells(rng, any_cell))


_MARKS = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}


def encoded(content: str, encoding: str) -> bytes:
    encoding = _MARKS.get(encoding, encoding)
    if encoding == "utf-8":
        return content.encode(encoding, "surrogateescape" if "\ud800" not in content else "surrogatepass")
    return content.encode(encoding, "surrogatepass" if encoding.startswith("utf") else "replace")


@dataclass(frozen=True)
class Writer:
    """Function from tables to text."""

    quoting: int | None = csv.QUOTE_MINIMAL  # of `csv.writer`; None writes the cells unchanged
    end: str = "\n"
    delimiter: str = ","
    encoding: str = "utf-8"
    header: bool = True
    final: bool = True

    def line(self, cells: Sequence[Any]) -> str:
        if self.quoting is None:
            return self.delimiter.join(map(str, cells)) + self.end
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=self.delimiter, quoting=self.quoting, lineterminator=self.end).writerow(cells)
        return out.getvalue()

    def parts(self, table: Table, edit: Edit | None) -> list[bytes]:
        lines: list[str | bytes] = [self.line(NAMES)] if self.header else []
        for at, record in enumerate(table.records):
            if edit is None or at != edit.at:
                lines.append(self.line(record))
            elif edit.whole:
                lines.append(edit.whole[0] + self.end.encode())
            else:
                lines.append(self.line(edit.texts(table)))
        if not self.final:
            last = lines[-1]
            lines[-1] = last[: -len(self.end)]
        parts = [part if isinstance(part, bytes) else encoded(part, self.encoding) for part in lines]
        return [encoded("\ufeff", self.encoding) + parts[0], *parts[1:]] if self.encoding in _MARKS else parts


def _is_json(content: str) -> bool:
    try:
        return isinstance(json.loads(content), float)
    except ValueError:
        return False


def json_lines(table: Table, edit: Edit | None) -> list[bytes]:
    """The records as lines of JSON."""
    lines = []
    for at, record in enumerate(table.records):
        values = {
            name: content if name in CHOSEN and _is_json(content) else json.dumps(content, ensure_ascii=False)
            for name, content in zip(NAMES, record, strict=True)
        }
        if edit is not None and at == edit.at:
            if edit.whole:
                lines.append(edit.whole[0] + b"\n")
                continue
            values = {name: value for name, value in values.items() if name not in edit.without} | dict(edit.cells)
            values |= {f"extra{i}": value for i, value in enumerate(edit.extra)}
        line = ", ".join(f"{json.dumps(name)}: {value}" for name, value in values.items())
        lines.append(encoded("{" + line.replace("\n", " ") + "}\n", "utf-8"))
    return lines
