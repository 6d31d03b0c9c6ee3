"""Cells of delimited text as numbers: one at a time by `number`, whole blocks by `CellParser`.

`number` defines which cells are numbers. `CellParser` reads a block only if it reads every cell of the block as
`number` does, so that the outcome of a record depends on that record only, not on those beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.errors import SourceError
from streampca.linalg.types import FloatArray
from streampca.rows.names import MISSING
from streampca.sources.records import OVERLONG, QUOTE, UNCLOSED, Letters, Places, quote_places

#: About the largest number of cells in texts that are parsed together.
_TOGETHER = 2**20
#: Edges of cells that are converted together.
_MOST_EDGES = 2**19
#: Texts read ahead while cells are converted.
_AHEAD = 16
_LINE_END, _NO_NUMBER = b"\n_"
_SPACE = " \t\n\r\v\f"
# Possessive: time and memory are linear in the length of a cell, or of a row of a million cells.
_NUMBER = r"[ \t\n\r\v\f]*+[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+[ \t\n\r\v\f]*+"
_ONE = re.compile(_NUMBER)
_MANY = re.compile(rf"{_NUMBER}(?:\x00{_NUMBER})*+")
_INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)
_NAN = re.compile(r"[+-]?nan(?:\([0-9a-z_]*\))?", re.IGNORECASE)


def number(cell: str, missing: frozenset[str] = MISSING) -> float | None:
    """Return the number in a cell: NaN if it is missing, None if it is something else.

    Numbers are decimal, as in ``3``, ``-3.``, ``.5`` or ``1e-5``, with or without spaces around them, and are rounded
    correctly. ``inf``, ``infinity`` and ``1e999`` are infinite. ``1_000``, ``1,000``, ``0x10``, ``True`` and digits
    outside ASCII are not numbers.
    """
    bare = cell.strip(_SPACE)
    if bare in missing or _NAN.fullmatch(bare):
        return float("nan")
    if _ONE.fullmatch(cell) or _INFINITE.fullmatch(bare):
        return float(bare)
    return None


def numbers(cells: Sequence[str], missing: frozenset[str] = MISSING) -> list[float] | None:
    """Return the numbers in some cells; None if any is something else."""
    if _MANY.fullmatch("\0".join(cells)) and missing.isdisjoint(cell.strip(_SPACE) for cell in cells):
        try:
            return [float(cell) for cell in cells]
        except ValueError:  # a NUL inside a cell
            return None
    values = [value for cell in cells if (value := number(cell, missing)) is not None]
    return values if len(values) == len(cells) else None


def as_seconds(text: str) -> str:
    """Return a date and time as the text of the seconds since 1970, UTC by default; other text unchanged."""
    if number(text) is not None:
        return text
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return text
    return repr((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


Edges = npt.NDArray[np.int32]
#: A text without quotes; where its wanted cells begin and end in turn, row by row; then the end of the text.
_Cells = tuple[bytes, Edges]


class CellParser:
    """Numbers from blocks of whole records: numpy finds the cells, pyarrow or else `float` converts them.

    ``places`` are the positions of the wanted cells among the ``width`` in a row, in the order wanted. ``quotes`` is
    whether quotes enclose cells.
    """

    def __init__(
        self, width: int, places: Sequence[int], delimiter: str, missing: frozenset[str] = MISSING, *,
        quotes: bool = True,
    ) -> None:  # fmt: skip
        self._width, self._delimiter, self._missing, self._quotes = width, ord(delimiter), missing, quotes
        self._every = places == range(width) or list(places) == list(range(width))
        wanted = np.asarray(() if self._every else places, dtype=np.intp)
        # Cells are converted in the order of the text and then permuted into the wanted order.
        self._sorted, self._order = np.sort(wanted), np.argsort(np.argsort(wanted))
        # Whether to look for missing cells: from the first cell on that is no number. Converters would read texts
        # such as 999 as numbers, so these are looked for from the start.
        self._gaps = any(_ONE.fullmatch(text) or _INFINITE.fullmatch(text) for text in missing)
        try:
            import pyarrow.compute

            self._arrow: Any = pyarrow
        except ImportError:
            self._arrow = None

    def parse(self, text: bytes) -> FloatArray | None:
        """Return the rows of whole records, one a record, or None if `number` must read any of them."""
        return self._rows(self._cells(text))

    def parse_all(self, texts: Iterator[bytes], *, live: bool) -> Iterator[tuple[bytes, FloatArray | None]]:
        """Yield each text with its rows as by `parse`. A `SourceError` of the texts follows those before it.

        A second thread converts the cells of one text while this one finds those of the next; it ends before any is
        yielded, so that no thread outlives a generator that is dropped. If ``live``, each text is yielded before the
        next is read.
        """
        problem = None
        while problem is None:
            done: list[tuple[bytes, FloatArray | None]] = []
            with ThreadPoolExecutor(1) as pool:
                begun: list[tuple[bytes, _Cells | None, Future[FloatArray | None]]] = []
                count = 0
                try:
                    while len(begun) < (1 if live else _AHEAD) and count <= _TOGETHER:
                        text = next(texts)
                        cells = self._cells(text)
                        begun.append((text, cells, pool.submit(self._rows, cells)))
                        count += 0 if cells is None else cells[1].size // 2
                except StopIteration:
                    texts = iter(())
                except SourceError as error:
                    problem = error
                # From the last: this thread converts the texts that the other has not begun.
                for text, cells, rows in reversed(begun):
                    done.append((text, self._rows(cells) if rows.cancel() else rows.result()))
            if not done:
                break
            yield from reversed(done)
        if problem is not None:
            raise problem

    def _rows(self, cells: _Cells | None) -> FloatArray | None:
        convert = self._by_python if self._arrow is None else self._by_arrow
        if cells is None or (values := convert(*cells)) is None:
            return None
        rows = values.reshape(-1, self._width if self._every else self._order.size)
        return rows if self._every else rows.take(self._order, axis=1)

    def _cells(self, text: bytes) -> _Cells | None:
        """Return the cells of whole records; None if `number` must read any record."""
        if text is OVERLONG or text is UNCLOSED:
            return None
        if not text.endswith(b"\n"):
            text += b"\n"
        # A CR LF becomes LF; any other CR stays and makes its cell no number.
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        letters, line_ends, ends = self._ends(text)
        quoted = None
        if self._quotes and b'"' in text:
            # Most often a quoted cell holds no delimiter, line end or quote: then it begins and ends with its only two.
            starts = np.append(0, ends[:-1] + 1)
            quoted = letters[starts] == QUOTE
            last = ends[quoted] - 1
            closed = (letters[last] == QUOTE) & (last > starts[quoted])
            if not closed.all() or np.count_nonzero(letters == QUOTE) != 2 * closed.size:
                unquoted = self._unquoted(letters)
                if unquoted is None:
                    return None
                text, quoted = unquoted, None
                letters, line_ends, ends = self._ends(text)
        # Every record has `width` cells if each width-th end, and no other, is a line end.
        lines = ends[self._width - 1 :: self._width]
        if ends.size != lines.size * self._width or np.count_nonzero(line_ends) != lines.size:
            return None
        if not line_ends[lines].all():
            return None
        # Without the quotes, each end moves back by two letters for every quoted cell up to it.
        if quoted is not None:
            ends -= 2 * np.cumsum(quoted)
            text = text.translate(None, b'"')
        edges = np.empty(2 * ends.size + 1, dtype=np.int32)
        edges[0], edges[1::2] = 0, ends
        np.add(edges[1::2], 1, out=edges[2::2])
        if not self._every:
            chosen = edges[:-1].reshape(-1, self._width, 2)[:, self._sorted]
            edges = np.append(chosen, edges[-1])
        return text, edges

    def _ends(self, text: bytes) -> tuple[Letters, npt.NDArray[np.bool_], Places]:
        """Return the letters of a text, which of them end lines, and the places where cells end."""
        letters = np.frombuffer(text, dtype=np.uint8)
        line_ends = letters == _LINE_END
        breaks = letters == self._delimiter
        breaks |= line_ends
        return letters, line_ends, np.flatnonzero(breaks)

    def _unquoted(self, letters: Letters) -> bytes | None:
        """Return a text without the quotes of its cells; None if text follows a closing quote.

        Delimiters, line ends and quotes within quotes, and other quotes, become a letter that makes a cell no number.
        """
        # A closing quote directly before an opening one is a doubled quote: neither opens or closes the cell.
        quotes = quote_places(letters, self._delimiter)
        opening, closing = quotes[::2], quotes[1::2]
        doubled = opening[1:] == closing[:-1] + 1
        if doubled.any():
            opening, closing = opening[np.append(True, ~doubled)], closing[np.append(~doubled, True)]
        breaks = (letters == self._delimiter) | (letters == _LINE_END)
        if not breaks[closing + 1].all():
            return None
        places = np.flatnonzero(breaks)
        text = letters.copy()
        text[places[np.searchsorted(quotes, places) % 2 == 1]] = _NO_NUMBER
        text[letters == QUOTE] = _NO_NUMBER
        text[opening] = text[closing] = QUOTE
        return text.tobytes().translate(None, b'"')

    def _by_arrow(self, text: bytes, edges: Edges) -> FloatArray | None:
        """Return the numbers in the cells; None if any is something else."""
        if edges.size > _MOST_EDGES + 1:  # bounds the memory of wide rows
            values = np.empty(edges.size // 2)
            for at in range(0, edges.size - 1, _MOST_EDGES):
                part = self._by_arrow(text, edges[at : at + _MOST_EDGES + 1])
                if part is None:
                    return None
                values[at // 2 : at // 2 + part.size] = part
            return values
        pa, pc = self._arrow, self._arrow.compute
        count = edges.size - 1
        # An array of strings without a copy: the text between two cells is null, by a mask of alternate bits.
        alternate: Any = b"\x55" * (count // 8 + 1)
        strings = pa.StringArray.from_buffers(count, *map(pa.py_buffer, (edges, text, alternate)))
        missing = None
        try:
            if not self._gaps:
                floats = strings.cast(pa.float64())
        except pa.ArrowInvalid:  # the other texts of the file are likely to have missing cells, too
            self._gaps = True
        if self._gaps:
            strings = pc.ascii_trim_whitespace(strings)
            missing = pc.is_in(strings, value_set=pa.array(sorted(self._missing), type=pa.string()))
            try:
                floats = pc.if_else(missing, pa.scalar(None, pa.string()), strings).cast(pa.float64())
            except pa.ArrowInvalid:
                return None
        values = np.frombuffer(floats.buffers()[1], dtype=np.float64, count=count)[::2].copy()
        if missing is not None:
            values[missing.to_numpy(zero_copy_only=False)[::2]] = np.nan
        return values

    def _by_python(self, text: bytes, edges: Edges) -> FloatArray | None:
        """Return what `_by_arrow` returns, if only empty cells are missing."""
        cells = [text[start:end] for start, end in zip(edges[:-1:2].tolist(), edges[1::2].tolist(), strict=True)]
        if self._gaps or b"_" in b"".join(cells):  # float() accepts 1_000, which `number` does not
            return None
        try:
            return np.array([float(cell) if cell else np.nan for cell in cells])
        except ValueError:
            return None
