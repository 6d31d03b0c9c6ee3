"""Cells of delimited text as numbers: one at a time by `number`, whole blocks by `CellParser`.

Which cells are numbers is defined by `number`; `CellParser` only ever reads a
block whose every cell it reads as `number` does. So what becomes of a record
depends on that record alone, not on those beside it.
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

#: Texts are parsed together up to about so many cells.
_TOGETHER = 2**20
#: Edges of cells that are converted together.
_MOST_EDGES = 2**19
#: Texts that are held while their cells are converted.
_AHEAD = 16
_LINE_END, _NO_NUMBER = b"\n_"
_SPACE = " \t\n\r\v\f"
# Possessive: a long cell, or a row of a million, takes time and memory in proportion to its length.
_NUMBER = r"[ \t\n\r\v\f]*+[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+[ \t\n\r\v\f]*+"
_ONE = re.compile(_NUMBER)
_MANY = re.compile(rf"{_NUMBER}(?:\x00{_NUMBER})*+")
_INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)
_NAN = re.compile(r"[+-]?nan(?:\([0-9a-z_]*\))?", re.IGNORECASE)


def number(cell: str, missing: frozenset[str] = MISSING) -> float | None:
    """The number in a cell: NaN if it is missing, None if it is something else.

    Numbers are decimal, as in ``3``, ``-3.``, ``.5`` or ``1e-5``, with or
    without spaces around them, and are rounded correctly. ``inf`` and
    ``infinity`` are infinite, and so is ``1e999``. ``1_000``, ``1,000``,
    ``0x10``, ``True`` and digits outside ASCII are not numbers.
    """
    bare = cell.strip(_SPACE)
    if bare in missing or _NAN.fullmatch(bare):
        return float("nan")
    if _ONE.fullmatch(cell) or _INFINITE.fullmatch(bare):
        return float(bare)
    return None


def numbers(cells: Sequence[str], missing: frozenset[str] = MISSING) -> list[float] | None:
    """The numbers in some cells; None if any is something else."""
    if _MANY.fullmatch("\0".join(cells)) and missing.isdisjoint(cell.strip(_SPACE) for cell in cells):
        try:
            return [float(cell) for cell in cells]
        except ValueError:  # a NUL inside a cell
            return None
    read = [number(cell, missing) for cell in cells]
    found = [value for value in read if value is not None]
    return found if len(found) == len(read) else None


def as_seconds(text: str) -> str:
    """A date and time as the number of seconds since 1970, UTC unless it says otherwise; other text as it is."""
    if number(text) is not None:
        return text
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return text
    return repr((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


Edges = npt.NDArray[np.int32]
#: A text without quotes, and where the wanted cells in it begin and end in turn, row by row; then the end of the text.
_Cells = tuple[bytes, Edges]


class CellParser:
    """Numbers from blocks of whole records: numpy finds the cells, pyarrow or else `float` converts them.

    ``places`` are the positions of the wanted cells among the ``width`` in a row, in the order wanted; ``quotes`` says
    whether quotes enclose cells.
    """

    def __init__(
        self, width: int, places: Sequence[int], delimiter: str, missing: frozenset[str] = MISSING, *,
        quotes: bool = True,
    ) -> None:  # fmt: skip
        self._width, self._delimiter, self._missing, self._quotes = width, ord(delimiter), missing, quotes
        self._every = places == range(width) or list(places) == list(range(width))
        wanted = np.asarray(() if self._every else places, dtype=np.intp)
        self._sorted, self._order = np.sort(wanted), np.argsort(np.argsort(wanted))
        # Whether missing cells are looked for: from the first cell on that is no number, or, as a converter would not
        # find texts such as 999 missing, from the beginning.
        self._gaps = any(_ONE.fullmatch(text) or _INFINITE.fullmatch(text) for text in missing)
        try:
            import pyarrow.compute

            self._arrow: Any = pyarrow
        except ImportError:
            self._arrow = None

    def parse(self, text: bytes) -> FloatArray | None:
        """The rows of whole records, one a record, or None if any is to be read by other means."""
        found = self._cells(text)
        return None if found is None else self._rows(found)

    def parse_all(self, texts: Iterator[bytes], *, live: bool) -> Iterator[tuple[bytes, FloatArray | None]]:
        """Each text with its rows as by `parse`; where the texts end with a `SourceError`, those before it come first.

        A second thread converts the cells of one text while those of the next are found; it ends before any is
        yielded. If ``live``, each text is yielded before the next one is asked for.
        """
        problem = None
        while problem is None:
            done: list[tuple[bytes, FloatArray | None]] = []
            with ThreadPoolExecutor(1) as pool:
                begun: list[tuple[bytes, _Cells | None, Future[FloatArray | None] | None]] = []
                cells = 0
                try:
                    while len(begun) < (1 if live else _AHEAD) and cells <= _TOGETHER:
                        text = next(texts)
                        found = self._cells(text)
                        begun.append((text, found, None if found is None or live else pool.submit(self._rows, found)))
                        cells += 0 if found is None else found[1].size // 2
                except StopIteration:
                    texts = iter(())
                except SourceError as error:
                    problem = error
                for text, found, rows in reversed(begun):  # what the thread has not begun is done here
                    if found is None:
                        done.append((text, None))
                    else:
                        done.append((text, self._rows(found) if rows is None or rows.cancel() else rows.result()))
            if not done:
                break
            yield from reversed(done)
        if problem is not None:
            raise problem

    def _rows(self, found: _Cells) -> FloatArray | None:
        values = self._by_python(*found) if self._arrow is None else self._by_arrow(*found)
        if values is None:
            return None
        rows = values.reshape(-1, self._width if self._every else self._order.size)
        return rows if self._every else rows.take(self._order, axis=1)

    def _cells(self, text: bytes) -> _Cells | None:
        """The cells of whole records; None if any record is to be read by other means."""
        if text is OVERLONG or text is UNCLOSED:
            return None
        if not text.endswith(b"\n"):
            text += b"\n"
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
        lines = ends[self._width - 1 :: self._width]
        if ends.size != lines.size * self._width or np.count_nonzero(line_ends) != lines.size:
            return None
        if not line_ends[lines].all():
            return None
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
        """The letters of a text, which of them end lines, and the places where cells end."""
        letters = np.frombuffer(text, dtype=np.uint8)
        line_ends = letters == _LINE_END
        breaks = letters == self._delimiter
        breaks |= line_ends
        return letters, line_ends, np.flatnonzero(breaks)

    def _unquoted(self, letters: Letters) -> bytes | None:
        """A text without the quotes of its cells; None if text follows a closing quote.

        Delimiters, line ends and quotes within quotes, and other quotes, are replaced by what makes a cell no number.
        """
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
        """The numbers in the cells; None if any is something else."""
        if edges.size > _MOST_EDGES + 1:  # where rows are wide, memory counts
            values = np.empty(edges.size // 2)
            for at in range(0, edges.size - 1, _MOST_EDGES):
                part = self._by_arrow(text, edges[at : at + _MOST_EDGES + 1])
                if part is None:
                    return None
                values[at // 2 : at // 2 + part.size] = part
            return values
        pa, pc = self._arrow, self._arrow.compute
        count = edges.size - 1
        alternate: Any = b"\x55" * (count // 8 + 1)  # what lies between two cells is null
        strings = pa.StringArray.from_buffers(count, *map(pa.py_buffer, (edges, text, alternate)))
        missing = None
        try:
            if not self._gaps:
                floats = strings.cast(pa.float64())
        except pa.ArrowInvalid:  # so it will be for most texts of the file
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
        """As `_by_arrow`, where no cell is missing but empty ones."""
        cells = [text[start:end] for start, end in zip(edges[:-1:2].tolist(), edges[1::2].tolist(), strict=True)]
        if self._gaps or b"_" in b"".join(cells):  # Python reads 1_000, which is no number here
            return None
        try:
            return np.array([float(cell) if cell else np.nan for cell in cells])
        except ValueError:
            return None
