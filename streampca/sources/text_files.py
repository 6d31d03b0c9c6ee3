"""Text files and streams: decompressed bytes, as UTF-8 pieces of whole records, in flat memory."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import lzma
import os
import re
import stat
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar

from streampca.errors import BadParameterError, SourceError, listed, reason, short
from streampca.sources.base import BlockSource
from streampca.sources.reading import Reading
from streampca.sources.records import LONGEST_HEADER, LONGEST_RECORD, OVERLONG, UNCLOSED, record_ends

#: Bytes of each block but the first whose lines are counted, to tell how many records there will be.
_COUNTED = 2**14
#: Encodings where what a line means depends on the lines before it, or a line end can be written in other words.
_NOT_BY_LINE = re.compile(r"utf-7|hz|iso2022|(raw-)?unicode-escape|punycode")
#: Seconds between two looks at the end of a file that is followed.
_POLL = 0.1
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)

#: The path of a file, ``"-"`` for standard input, or a binary stream.
Readable = str | os.PathLike[str] | IO[bytes]
T = TypeVar("T")


class ByteFile:
    """A file, a named pipe, standard input (``"-"``) or a binary stream.

    With ``follow``, reading waits for more at the end of a file or named pipe. ``name`` is that of the file or stream,
    for messages; ``once`` says that the bytes can be read once only. Raises `BadParameterError` if the source is none
    of these.
    """

    def __init__(self, source: Readable, *, follow: bool = False) -> None:
        self._source: Any = sys.stdin.buffer if source == "-" else source
        self._follow = follow
        if isinstance(self._source, (str, os.PathLike)):
            self.name = str(self._source)
            path = Path(self._source)
            try:
                self.once = follow or not (stat.S_ISREG(path.stat().st_mode) or path.is_dir())
            except OSError:  # opening it says what is wrong with it
                self.once = follow
        elif hasattr(self._source, "readinto"):
            self.name = str(getattr(self._source, "name", "the stream"))
            self.once = True
        else:
            raise BadParameterError(f"path={short(source)} must be the path of a file or a binary stream")

    def start(self, begun: T | None, opened: Callable[[], T]) -> T:
        """What was begun with the first bytes, or else is opened; `SourceError` where bytes come once and were read."""
        if begun is None and self.once:
            raise SourceError(f"{self.name}: was read before, and can be read once only; save it to a file")
        return opened() if begun is None else begun

    def open(self) -> io.BufferedReader:
        """The bytes from the start, or where the stream is. Closing it does not close a stream that was given."""
        if isinstance(self._source, (str, os.PathLike)):
            path = Path(self._source)
            return io.BufferedReader(_Followed(path)) if self._follow else path.open("rb")
        return io.BufferedReader(_Unclosed(self._source))


class TextFile(ByteFile):
    """The bytes of a text file, plain, gzip or zip (one member), as UTF-8.

    Parameters
    ----------
    source, follow : see `ByteFile`. Compressed text cannot be followed.
    reading : its encoding, limit and bad rows. A byte order mark is left out. If bad rows are absorbed, U+FFFD stands
        for what is not text in the encoding, UTF-8 is passed on unchecked, and encodings where a line does not stand
        on its own, such as UTF-7, are refused.
    has_header : the first bytes are no record's, so they may tell gzip, zip and UTF-16. If not, and bad rows are
        absorbed, the end of the name tells gzip and zip: a record must not decide.

    Raises
    ------
    BadParameterError
        If the source cannot be read, or the encoding is not known.
    """

    def __init__(self, source: Readable, reading: Reading, *, has_header: bool) -> None:
        super().__init__(source, follow=reading.follow)
        encoding, replace, by_name = reading.encoding, reading.is_absorbing, reading.is_absorbing and not has_header
        try:
            known = codecs.lookup(encoding).name
            "".encode(encoding)  # refuses what turns bytes into bytes, such as base64
        except (LookupError, TypeError, UnicodeError) as error:
            raise BadParameterError(
                f"encoding={short(encoding)} is not known; 'utf-8', 'latin-1', 'cp1252' are some"
            ) from error
        if replace and _NOT_BY_LINE.match(known):
            raise BadParameterError(
                f"on_bad_row='zero' with encoding={short(encoding)}: one damaged line could change those after it; "
                f"make the text UTF-8 first, as with iconv -f {known} -t utf-8"
            )
        if replace and by_name and known in ("utf-16", "utf-32"):
            raise BadParameterError(
                f"encoding={short(encoding)}: the first record would say the order of bytes; pass '{known}-le' or "
                f"'{known}-be', with or without a byte order mark"
            )
        self._is_utf8 = known in ("utf-8", "utf-8-sig", "ascii")
        self._encoding, self._replace, self._max_bytes, self._by_name = encoding, replace, reading.max_bytes, by_name
        self._records = self._share = 0.0  # records read, and the share of the bytes of the file that they took

    def expected_records(self, after: int) -> int | None:
        """Number of records after so many, to three digits, by those read and the size of the file, if known."""
        return int(float(f"{max(0.0, self._records / self._share - after):.3g}")) if self._share else None

    def blocks(self, size: int = 2**20) -> Iterator[bytes]:
        """The text from the start, at most about ``size`` bytes at a time.

        Raises `SourceError` if the file cannot be opened, is damaged or expands too far.
        """
        blocks = self._decompressed(size if self._is_utf8 else size // 4)  # a byte becomes at most 4 of UTF-8
        first = b""
        while len(first) < 4 and (block := next(blocks, b"")):
            first += block
        marks = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE
        if self._is_utf8 and not self._by_name and first.startswith(marks):
            raise SourceError(f"{self.name}: this is UTF-16 text; pass encoding='utf-16'")
        try:
            texts = self._as_utf8(chain([first], blocks))
            yield next(texts, b"").removeprefix(codecs.BOM_UTF8)
            yield from texts
        except UnicodeError as error:
            raise SourceError(
                f"{self.name}: this is not {self._encoding} text ({reason(error)}); pass another encoding="
            ) from error

    def _as_utf8(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        if self._is_utf8:
            yield from blocks
            return
        decoder = codecs.getincrementaldecoder(self._encoding)("replace" if self._replace else "strict")
        for block in chain(blocks, [b""]):
            if text := decoder.decode(block, final=not block):
                yield text.encode()

    def _decompressed(self, size: int) -> Iterator[bytes]:
        try:
            with contextlib.ExitStack() as stack:
                stream, limit, counted, length = self._opened(stack)
                read, total = getattr(stream, "read1" if self.once else "read"), 0  # of a pipe, what is there
                if length and limit is None:  # many small files would else leave the heap in pieces
                    size = min(size, length + 1)
                while block := read(size):
                    total += len(block)
                    self._share = counted.tell() / length if length else 0.0
                    if limit is not None and total > limit:
                        raise SourceError(
                            f"{self.name}: expands to more than {limit} bytes; pass max_bytes= if that is meant"
                        )
                    yield block
        except _DAMAGE as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise SourceError(
                f"{self.name}: cannot be read: {reason}; check the path, or make the file again"
            ) from error

    def _opened(self, stack: contextlib.ExitStack) -> tuple[Any, int | None, Any, int]:
        """The decompressed stream, the limit if it is compressed, and what tells how much was read of how many bytes.

        The number of bytes is 0 where it is not known.
        """
        raw: Any = stack.enter_context(self.open())
        length = 0 if self.once else os.fstat(raw.fileno()).st_size
        if self._by_name:
            packed = {".gz": "gzip", ".zip": "zip"}.get(Path(self.name).suffix.lower())
        else:
            magic = raw.peek(4)[:4]
            zipped = magic in (b"PK\x03\x04", b"PK\x05\x06")
            packed = "gzip" if magic.startswith(b"\x1f\x8b") else "zip" if zipped else None
        if packed is not None and self._follow:
            raise SourceError(f"{self.name}: a compressed file cannot be followed; pass it through a pipe, as in zcat")
        if packed == "gzip":
            return stack.enter_context(gzip.GzipFile(fileobj=raw, mode="rb")), self._max_bytes, raw, length
        if packed is None:
            return raw, None, raw, length
        if not raw.seekable():
            raise SourceError(f"{self.name}: a zip archive cannot be read from a pipe; use gzip, or give its path")
        archive = stack.enter_context(zipfile.ZipFile(raw))
        members = [m for m in archive.namelist() if not m.endswith("/") and not m.startswith("__MACOSX/")]
        if len(members) != 1:
            raise SourceError(f"{self.name}: holds {len(members)} files ({listed(members)}); make an archive of one")
        member = stack.enter_context(archive.open(members[0]))
        # The member itself is asked: it reads the file far ahead.
        return member, self._max_bytes, member, archive.getinfo(members[0]).file_size

    def pieces(
        self, blocks: Iterable[bytes], delimiter: str | None = None, *, longest: int = LONGEST_RECORD,
        header: bool = False,
    ) -> Iterator[bytes]:  # fmt: skip
        """The text as non-empty pieces that end where records end; the last record may lack its line end.

        Parameters
        ----------
        blocks : the text, each block of at most ``longest`` bytes behind its first line end.
        delimiter : of cells that may be quoted; None if quotes are characters.
        longest : most bytes of a record without its line end. `OVERLONG` is put for longer ones, alone, and `UNCLOSED`
            for the last one if the text ends in its quotes.
        header : the first record may have up to 16 MiB, and all others 4 times its length.

        Raises
        ------
        SourceError
            As `blocks`, or if the header is too long; whole records before come first.
        """
        limit = LONGEST_HEADER if header else longest
        held: list[bytes | memoryview] = []
        length, state = 0, b""  # bytes of the record that has begun, and where in a cell it stands
        self._records = 0
        for block in blocks:  # a record that lies within one block is never too long
            if delimiter is None or (b'"' not in block and state != b'"'):
                first, last = block.find(b"\n") + 1, block.rfind(b"\n") + 1
                counted = min(len(block), _COUNTED) if self._records else len(block)
                self._records += block.count(b"\n", 0, counted) * len(block) / max(1, counted)
                state = b"x" if delimiter is not None and not block.endswith((b"\n", delimiter.encode())) else b""
            else:
                ends, after = record_ends(state + block, delimiter)
                first, last = (int(ends[at]) - len(state) for at in (0, -1)) if ends.size else (0, 0)
                state = after
                self._records += ends.size
            length += first - 1 if first else len(block)
            if length <= limit:
                held.append(block[:first] if first else block)
            elif header:
                raise SourceError(f"{self.name}: the first line is longer than {limit} bytes; is this a table of text?")
            else:
                held = []
            if first:
                if length > limit:
                    yield OVERLONG
                if header:
                    limit, header = max(longest, 4 * length), False
                held.append(memoryview(block)[first:last])  # copied once, by join
                if piece := b"".join(held):
                    yield piece
                held, length = [block[last:]], len(block) - last
        if state == b'"':
            yield UNCLOSED
        elif length:
            self._records += 1
            yield b"".join(held) if length <= limit else OVERLONG


class TextRows(BlockSource):
    """The rows of the text file or stream ``path``: what `CsvRows` and `NdjsonRows` share."""

    def __init__(self, path: Readable, reading: Reading, *, has_header: bool) -> None:
        self.path, self._has_header = path, has_header
        self._zero, self._lenient = reading.is_absorbing, reading.is_lenient
        self._chunk_rows, self._missing = reading.chunk_rows, reading.missing_texts
        self._file = TextFile(path, reading, has_header=has_header)

    @property
    def expected_rows(self) -> int | None:
        """Number of records that the file is expected to have after its header; None for pipes and streams."""
        return self._file.expected_records(self._has_header)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._file.name.rsplit('/', 1)[-1]!r} {self._describe()}>"


class _Followed(io.FileIO):
    """A file or named pipe that has no end: reading waits for more bytes."""

    def readinto(self, buffer: Any) -> int | None:
        while (count := super().readinto(buffer)) == 0:
            time.sleep(_POLL)
        return count


class _Unclosed(io.RawIOBase):
    """A binary stream that stays open when its readers are closed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        # At most what is there: a live stream is not to wait for more.
        read: int | None = getattr(self._stream, "readinto1", self._stream.readinto)(buffer)
        return read

    def seekable(self) -> bool:
        return bool(self._stream.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._stream.seek(offset, whence))
