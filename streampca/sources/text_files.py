"""Text files and streams: decompressed bytes, as UTF-8 pieces of whole lines, in flat memory."""

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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from streampca.errors import BadParameterError, SourceError, listed, reason, short
from streampca.linalg.counts import check_count
from streampca.sources.base import BlockSource, OnBadRow, check_missing, check_on_bad_row
from streampca.sources.csv_cells import MISSING, missing_texts

#: Longest line, in bytes, where a longer one is an error.
LONGEST_LINE = 2**24
#: Longest record, in bytes, where a longer one is a bad row.
LONGEST_RECORD = 2**20
#: Bytes of each block but the first whose lines are counted, to tell how many there will be.
_COUNTED = 2**14
#: Stands for a record that was too long to be kept. No number, no JSON.
OVERLONG = b"\0\n"
#: Encodings where what a line means depends on the lines before it, or a line end can be written in other words.
_NOT_BY_LINE = re.compile(r"utf-(7|16|32)|hz|iso2022|(raw-)?unicode-escape|punycode")
#: Seconds between two looks at the end of a file that is followed.
_POLL = 0.1
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)

#: The path of a file, ``"-"`` for standard input, or a binary stream.
Readable = str | os.PathLike[str] | IO[bytes]


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
            self.once = follow or not _is_regular(Path(self._source))
        elif hasattr(self._source, "readinto"):
            self.name = str(getattr(self._source, "name", "the stream"))
            self.once = True
        else:
            raise BadParameterError(f"path={short(source)} must be the path of a file or a binary stream")

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
    encoding : of the text; a byte order mark is left out.
    max_bytes : most bytes that compressed text may expand to; None for no limit.
    by_name : tell gzip and zip by the end of the name; else, and UTF-16, by the first bytes. The first
        bytes of a file without a header are a record's, which must not decide.
    replace : put U+FFFD for what is not text in this encoding, instead of raising. UTF-8 is passed on unchecked.
        Encodings where a line does not stand on its own, such as UTF-16, are refused.

    Raises
    ------
    BadParameterError
        If the source cannot be read, or the encoding is not known.
    """

    def __init__(
        self, source: Readable, *, encoding: str, max_bytes: int | None, by_name: bool, replace: bool,
        follow: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(source, follow=follow)
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
        self._is_utf8 = known in ("utf-8", "utf-8-sig", "ascii")
        self._encoding, self._replace, self._max_bytes, self._by_name = encoding, replace, max_bytes, by_name
        self._lines = self._share = 0.0  # lines read, about, and the share of the bytes of the file that they took

    def expected_lines(self, after: int) -> int | None:
        """Number of lines after so many, to three digits, by those read and the size of the file; None if not known."""
        return int(float(f"{max(0.0, self._lines / self._share - after):.3g}")) if self._share else None

    def blocks(self, size: int = 2**20) -> Iterator[bytes]:
        """The text from the start, at most about ``size`` bytes at a time.

        Raises `SourceError` if the file cannot be opened, is damaged or expands too far.
        """
        blocks = self._decompressed(size if self._is_utf8 else size // 4)  # a byte becomes at most 4 of UTF-8
        if self._is_utf8:
            first = next(blocks, b"")
            if not self._by_name and first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                remedy = "make it UTF-8 first, as with iconv -t utf-8" if self._replace else "pass encoding='utf-16'"
                raise SourceError(f"{self.name}: this is UTF-16 text; {remedy}")
            yield first.removeprefix(codecs.BOM_UTF8)
            yield from blocks
            return
        decoder = codecs.getincrementaldecoder(self._encoding)("replace" if self._replace else "strict")
        try:
            for block in blocks:
                if text := decoder.decode(block):
                    yield text.encode()
            if text := decoder.decode(b"", final=True):
                yield text.encode()
        except UnicodeError as error:
            raise SourceError(
                f"{self.name}: this is not {self._encoding} text ({reason(error)}); pass another encoding="
            ) from error

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
        packed = self._packing(raw)
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

    def _packing(self, raw: io.BufferedReader) -> str | None:
        if self._by_name:
            return {".gz": "gzip", ".zip": "zip"}.get(Path(self.name).suffix.lower())
        magic = raw.peek(4)[:4]
        return "gzip" if magic.startswith(b"\x1f\x8b") else "zip" if magic in (b"PK\x03\x04", b"PK\x05\x06") else None

    def pieces(self, size: int = 2**20, *, longest: int | None = None, header: bool = False) -> Iterator[bytes]:
        """The text as non-empty pieces that end where lines end (LF; the last one may not).

        Parameters
        ----------
        size : bytes to read at a time, at most ``longest``.
        longest : most bytes of a line without its end; `OVERLONG` is put for longer ones. Left out, one of
            more than 16 MiB is an error.
        header : the first line may have up to 16 MiB, and all others 4 times its length.

        Raises
        ------
        SourceError
            As `blocks`; whole lines before the problem are yielded first.
        """
        limit = LONGEST_LINE if longest is None or header else longest
        held: list[bytes | memoryview] = []
        length = 0  # of the line that has begun
        self._lines = 0.0
        for block in self.blocks(size):  # a line that lies within one block is never too long
            counted = min(len(block), _COUNTED) if self._lines else len(block)
            self._lines += block.count(b"\n", 0, counted) * len(block) / max(1, counted)
            end = block.find(b"\n") + 1
            length += end - 1 if end else len(block)
            if length <= limit:
                held.append(block[:end] if end else block)
            elif longest is None:
                raise SourceError(
                    f"{self.name}: no line end within {limit} bytes; is this a text file with one row a line?"
                )
            else:
                held = [OVERLONG] if end else []
            if end:
                if longest is not None and header:
                    limit, header = max(longest, 4 * length), False
                cut = block.rfind(b"\n") + 1
                held.append(memoryview(block)[end:cut])  # copied once, by join
                yield b"".join(held)
                held, length = [block[cut:]], len(block) - cut
        if length > limit:
            yield OVERLONG
        elif length:
            self._lines += 1
            yield b"".join(held)


class TextRows(BlockSource):
    """The rows of the text file or stream ``path``: what `CsvRows` and `NdjsonRows` share."""

    _file: TextFile
    _header_lines = 0

    def __init__(
        self, path: Readable, *, missing: str, na: str | Sequence[str], on_bad_row: OnBadRow, chunk_rows: int,
        max_bytes: int | None,
    ) -> None:  # fmt: skip
        check_count("chunk_rows", chunk_rows)
        check_count("max_bytes", max_bytes, optional=True)
        self.path = path
        self._nan, self._zero, self._chunk_rows = check_missing(missing), check_on_bad_row(on_bad_row), chunk_rows
        self._missing = MISSING | missing_texts(na)

    @property
    def expected_rows(self) -> int | None:
        """Number of lines that the file is expected to have after its header; None for pipes and streams."""
        return self._file.expected_lines(self._header_lines)

    def _read_before(self) -> SourceError:
        return SourceError(f"{self._file.name}: was read before, and can be read once only; save it to a file")

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


def _is_regular(path: Path) -> bool:
    """Whether a path can be read again; opening it says what is wrong with one that cannot be looked at."""
    try:
        return stat.S_ISREG(path.stat().st_mode) or path.is_dir()
    except OSError:
        return True
