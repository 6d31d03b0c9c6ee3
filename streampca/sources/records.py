"""Where a record of a text file ends. Every reader of text uses these functions, so all agree.

With quotes as RFC 4180 has them, a record ends at the first LF outside quotes; without quotes, at every LF. A CR
before it belongs to the line end; any other CR, and VT, FF, NEL and U+2028, are characters. A quote opens a quoted cell
at the start of a cell only. In it, two quotes stand for one, and a single one closes it. Every other quote is a
character; text after the closing quote makes the record bad and leaves the quote closed.
"""

from __future__ import annotations

import re
from io import BytesIO
from itertools import pairwise

import numpy as np
import numpy.typing as npt

#: Longest record, in bytes of UTF-8. A longer one is one bad row.
LONGEST_RECORD = 2**20
#: Longest header, in bytes.
LONGEST_HEADER = 2**24
#: Stand for a record that was too long to be kept, and for a last one whose quotes are not closed. Compare them by
#: identity, since a file may hold these bytes.
OVERLONG, UNCLOSED = b"\0\n", b"\0\0\n"
_LF, QUOTE = b'\n"'

Places = npt.NDArray[np.intp]
Letters = npt.NDArray[np.uint8]


def quote_places(letters: Letters, delimiter: int) -> Places:
    """The quotes that open and close quoted cells, in turn, in a text that begins with a record.

    Two quotes that stand for one close the cell and open it again.
    """
    places = np.flatnonzero(letters == QUOTE)
    before = letters[places - 1]
    at_start = (before == delimiter) | (before == _LF) | (places == 0)
    adjacent = np.diff(places, prepend=-2) == 1
    if (at_start | adjacent)[::2].all():  # as CSV writers quote: each second one opens a cell or continues it
        return places
    found = [-2]
    for place, starts, follows in zip(places.tolist(), at_start.tolist(), adjacent.tolist(), strict=True):
        if len(found) % 2 == 0 or starts or (follows and found[-1] == place - 1):
            found.append(place)
    return np.array(found[1:], dtype=np.intp)


def record_ends(text: bytes, delimiter: str) -> tuple[Places, bytes]:
    """The places behind the records of a text with quotes, and a short text that leaves off in the same state.

    The text begins with a record, or with what a call before returned for the text before it.
    """
    letters = np.frombuffer(text, dtype=np.uint8)
    quotes, ends = quote_places(letters, ord(delimiter)), np.flatnonzero(letters == _LF)
    ends = ends[np.searchsorted(quotes, ends) % 2 == 0] + 1
    if quotes.size % 2:
        return ends, b'"'
    if quotes.size and quotes[-1] == len(text) - 1:
        return ends, b'""'
    return ends, b"" if text.endswith((b"\n", delimiter.encode())) else b"x"


def split_records(text: bytes, delimiter: str | None) -> list[bytes]:
    """The records of a text of whole records."""
    if text is OVERLONG or text is UNCLOSED:
        return [text]
    if delimiter is None or b'"' not in text:
        return BytesIO(text).readlines()
    ends = record_ends(text, delimiter)[0].tolist()
    return [text[start:end] for start, end in pairwise([0, *ends, len(text)]) if start < end]


class CellSplitter:
    """The cells of one record; ``quotes`` says whether quotes enclose cells."""

    def __init__(self, delimiter: str, *, quotes: bool) -> None:
        self._delimiter, self._quotes = delimiter, quotes
        mark = re.escape(delimiter)
        self._cell = re.compile(rf'(?:"([^"]*+(?:""[^"]*+)*+)"|((?!")[^{mark}]*+))({mark}|\Z)')

    def __call__(self, record: bytes) -> list[str] | None:
        """The cells, or None if text follows a closing quote. Bytes that are not UTF-8 become lone surrogates."""
        text = record.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if not self._quotes or '"' not in text:
            return text.split(self._delimiter)
        cells, at = [], 0
        while found := self._cell.match(text, at):
            cells.append(found[2] if found[1] is None else found[1].replace('""', '"'))
            if not found[3]:
                return cells
            at = found.end()
        return None
