"""Where records end: every reader against a machine that looks at one character at a time; a record is one row."""

from __future__ import annotations

import io
import math
from random import Random

import numpy as np
import pytest

from streampca.errors import SourceError
from streampca.sources import csv_rows, from_csv
from streampca.sources.csv_cells import number

CELLS = (
    "1", "2.5", "", "x", "5\"", "7\r", "NA", '"3"', '"4,5"', '"4;5"', '"a\nb"', '"a\r\nb"', '"""x"""', '"1""2"',
    '"1\n"', '""', '"1"2', '"1"\r', "a\rb", "\v1", "\u2028", "\x85",
)  # fmt: skip


def machine(text: str, delimiter: str) -> tuple[list[list[str] | None], bool]:
    """The cells of each record, None for one with text behind a closing quote; and whether the text ends in quotes."""
    records: list[list[str] | None] = []
    cells, cell, state, bad = [], "", "start", False
    for at, letter in enumerate(text):
        if state == "quoted":
            state = "closed" if letter == '"' else state
            cell += letter if letter != '"' else ""
        elif letter == '"' and state in ("start", "closed"):
            cell += '"' if state == "closed" else ""
            state = "quoted"
        elif letter in (delimiter, "\n"):
            cells.append(cell)
            cell, state = "", "start"
            if letter == "\n":
                records.append(None if bad else cells)
                cells, bad = [], False
        elif letter == "\r" and text[at + 1 : at + 2] == "\n":
            pass
        else:
            bad |= state == "closed"
            cell, state = cell + letter, "other"
    return records, state == "quoted"


def made(draw: Random) -> tuple[str, str, int]:
    delimiter, width = draw.choice(",;"), draw.choice((1, 2, 3))
    if draw.random() < 0.4:
        letters = ("1", "2", delimiter, "\n", '"', '""', '"\n', " ", "\r", "\r\n")
        return "".join(draw.choice(letters) for _ in range(draw.randrange(1, 60))), delimiter, width
    wide = [width if draw.random() < 0.95 else draw.randrange(1, 5) for _ in range(draw.choice((1, 20, 200)))]
    lines = [delimiter.join(draw.choice(CELLS) for _ in range(count)) for count in wide]
    return draw.choice(("\n", "\r\n")).join(lines) or "1", delimiter, width


@pytest.mark.parametrize("runs", [range(100), pytest.param(range(100, 20_000), marks=pytest.mark.long)])
def test_any_text_is_read_as_the_machine_reads_it(runs: range, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = rows = 0
    for seed in runs:
        draw = Random(seed)
        text, delimiter, width = made(draw)
        quoting = draw.choice(("csv", "csv", "none"))
        whole = text if text.endswith("\n") else text + "\n"
        if quoting == "none":
            lines = whole.replace("\r\n", "\n").removesuffix("\n").split("\n")
            records, ends_in_quotes = [line.split(delimiter) for line in lines], False
        else:
            records, ends_in_quotes = machine(whole, delimiter)
        expected = np.full((len(records), width), math.nan)
        for row, cells in zip(expected, records, strict=True):
            values = [number(cell) for cell in cells or ()]
            if len(values) == width and None not in values:
                row[:] = values
        monkeypatch.setattr(csv_rows, "_BLOCK", draw.choice((1, 2, 3, 7, 50, 2**20)))
        names = [f"n{at}" for at in range(width)]
        blocks: list[np.ndarray] = [np.empty((0, width))]
        problem = None
        try:
            how = {"names": names, "delimiter": delimiter, "on_bad_row": "zero", "quoting": quoting}
            blocks.extend(from_csv(io.BytesIO(text.encode()), **how).blocks())
        except SourceError as error:
            problem = str(error)
        assert ("ends inside the quotes" in (problem or "")) == ends_in_quotes, (seed, problem)
        np.testing.assert_array_equal(np.concatenate(blocks), expected, err_msg=str(seed))
        damaged, rows = damaged + ends_in_quotes, rows + len(expected)
    assert damaged > 8
    assert rows > 2000
