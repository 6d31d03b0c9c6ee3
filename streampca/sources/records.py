"""Where a record of a text file ends. Every reader of text uses these functions, so that all agree.

With quotes as in RFC 4180, a record ends at the first LF outside quotes; without quotes, at every LF. A CR before it
belongs to the line end; any other CR, and VT, FF, NEL and U+2028, are characters. A quote opens a quoted cell at the
start of a cell only. In it, two quotes represent one, and a single one closes it. Every other quote is a character;
text after the closing quote makes the record bad and leaves the quote closed.
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
#: Placeholders for a record that is too long to keep, and for a last one whose quotes are not closed. Compare them by
#: identity, because a file may hold these bytes.
OVERLONG, UNCLOSED = b"\0\n", b"\0\0\n"
_LF, QUOTE = b'\n"'

Places = npt.NDArray[np.intp]


def are_plain_quotes(text: bytes, delimiter: str) -> bool:
    """Return whether every quote of whole records encloses a cell or is doubled within one, as CSV writers put them."""
    letters = np.frombuffer(text if text.endswith(b"\n") else text + b"\n", dtype=np.uint8)
    places = np.flatnonzero(letters == QUOTE)
    # Invariant: each even quote stands inside a cell and each odd one outside, or both are halves of a doubled one.
    # A text begins with a record, and ends in a line end, so that the letters around wrap to one.
    around = np.isin(letters, (ord(delimiter), _LF, QUOTE))
    return places.size % 2 == 0 and bool(around[places[::2] - 1].all() and around[(places[1::2] + 1)].all())


def record_ends(text: bytes, delimiter: str) -> tuple[Places, bytes]:
    """Return the places behind the records of a text with quotes, and a short text that ends in the same state."""
    # The text begins with a record, or with the short text that the previous call returned.
    letters = np.frombuffer(text, dtype=np.uint8)
    ends, quotes = np.flatnonzero(letters == _LF), np.flatnonzero(letters == QUOTE)
    before = letters[quotes - 1]
    at_start = (before == ord(delimiter)) | (before == _LF) | (quotes == 0)
    adjacent = np.diff(quotes, prepend=-2) == 1
    # Quotes open and close cells in turn; two that represent one close the cell and open it again. Text of a CSV writer
    # needs no loop: every second quote opens a cell or continues it.
    if not (at_start | adjacent)[::2].all():
        # Invariant: an even length (with the sentinel -2, an odd number of quotes) means inside a quoted cell.
        kept = [-2]
        for place, starts, follows in zip(quotes.tolist(), at_start.tolist(), adjacent.tolist(), strict=True):
            if len(kept) % 2 == 0 or starts or (follows and kept[-1] == place - 1):
                kept.append(place)
        quotes = np.array(kept[1:], dtype=np.intp)
    # A line end lies outside quotes if an even number of quotes precedes it.
    ends = ends[np.searchsorted(quotes, ends) % 2 == 0] + 1
    if quotes.size % 2:
        return ends, b'"'
    if quotes.size and quotes[-1] == len(text) - 1:
        return ends, b'""'  # the next letter may be a second quote, which opens the cell again
    return ends, b"" if text.endswith((b"\n", delimiter.encode())) else b"x"


def split_records(text: bytes, delimiter: str | None) -> list[bytes]:
    """Return the records of a text of whole records."""
    if text is OVERLONG or text is UNCLOSED:
        return [text]
    if delimiter is None or b'"' not in text:
        return BytesIO(text).readlines()
    ends = record_ends(text, delimiter)[0].tolist()
    return [text[start:end] for start, end in pairwise([0, *ends, len(text)]) if start < end]


def split_cells(record: bytes, delimiter: str, *, quotes: bool) -> list[str] | None:
    """Return the cells of a record; None if it is too long, or text follows a closing quote."""
    # ``quotes`` is whether quotes enclose cells. Bytes that are not UTF-8 become surrogates.
    if record is OVERLONG:
        return None
    text = record.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
    if not quotes or '"' not in text:
        return text.split(delimiter)
    mark = re.escape(delimiter)
    # Possessive quantifiers: time is linear in the length of a cell, for any content.
    pattern = re.compile(rf'(?:"([^"]*+(?:""[^"]*+)*+)"|((?!")[^{mark}]*+))({mark}|\Z)')
    cells, at = [], 0
    while cell := pattern.match(text, at):
        cells.append(cell[2] if cell[1] is None else cell[1].replace('""', '"'))
        if not cell[3]:
            return cells
        at = cell.end()
    return None
