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
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

from streampca.errors import BadParameterError, SourceError, UsageError, listed, reason, short
from streampca.linalg.types import FloatArray
from streampca.rows.names import MISSING
from streampca.rows.protocol import RowSource
from streampca.sources.reading import Reading
from streampca.sources.records import LONGEST_HEADER, LONGEST_RECORD, OVERLONG, UNCLOSED, record_ends

#: Encodings where the meaning of a line depends on the lines before it, or a line end has other spellings.
_NOT_BY_LINE = re.compile(r"utf-7|hz|iso2022|(raw-)?unicode-escape|punycode")
#: Seconds between two looks at the end of a file that is followed.
_POLL = 0.1
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)

#: The path of a file, ``"-"`` for standard input, or a binary stream.
Readable = str | os.PathLike[str] | IO[bytes]


class TextRows(RowSource):
    """Rows of a text file or stream, plain, gzip or zip (one member): the base class of `CsvRows` and `NdjsonRows`."""

    # ``has_header`` is whether the first bytes belong to no record, so that they may identify gzip, zip and UTF-16. If
    # not, the end of the name identifies gzip and zip, because no record may decide. A binary stream stays open. U+FFFD
    # replaces bytes that are not text in the encoding, and UTF-8 is passed on unchecked.

    def __init__(self, path: Readable, reading: Reading, *, has_header: bool) -> None:
        self.path, self._has_header = path, has_header
        self._chunk_rows, self._follow = reading.chunk_rows, reading.follow
        texts = reading.na.split(",") if isinstance(reading.na, str) else reading.na
        self._missing = MISSING | {text.strip(" \t\n\r\v\f") for text in texts}
        self._begun: Iterator[bytes] | None = None
        self._source: Any = sys.stdin.buffer if path == "-" else path
        self._once = True  # the bytes can be read only once
        if isinstance(self._source, (str, os.PathLike)):
            self.name = str(self._source)
            with contextlib.suppress(OSError):  # opening the path raises the error that explains this one
                mode = os.stat(self._source).st_mode
                self._once = reading.follow or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
        elif hasattr(self._source, "readinto"):
            self.name = str(getattr(self._source, "name", "the stream"))
        else:
            raise BadParameterError("path", path, "the path of a file or a binary stream")
        encoding = reading.encoding
        try:
            known = codecs.lookup(encoding).name
            "".encode(encoding)  # refuses codecs from bytes to bytes, such as base64
        except (LookupError, TypeError, UnicodeError) as error:
            raise BadParameterError("encoding", encoding, "an encoding of text, such as 'utf-8'") from error
        if _NOT_BY_LINE.match(known):
            raise UsageError(
                f"encoding={short(encoding)}: one damaged line could change others; convert the "
                f"text, as with iconv -f {known} -t utf-8"
            )
        if not has_header and known in ("utf-16", "utf-32"):
            raise UsageError(
                f"encoding={short(encoding)}: the first record would decide the byte order; pass '{known}-le'"
            )
        self._is_utf8 = known in ("utf-8", "utf-8-sig", "ascii")
        self._encoding, self._max_bytes = encoding, reading.max_bytes
        self._count, self._share = 0, 0.0  # records read, and their share of the bytes of the file

    def _start(self) -> Iterator[bytes]:
        """Return the pieces that the constructor began to read of a stream, or all of a file."""
        begun, self._begun = self._begun, None
        if begun is None and self._once:
            raise SourceError(self.name, "was read before, and can be read once only; save it to a file")
        return self._pieces() if begun is None else begun

    def count_rows(self) -> int | None:
        # The reader's own splitting counts: a line end within quotes ends no record.
        if self._once:
            return None
        for _ in self._pieces():
            pass
        return self._count - int(self._has_header)

    def blocks(self) -> Iterator[FloatArray]:
        for rows in chain.from_iterable(map(self._parsed, self._start())):
            for start in range(0, rows.shape[0], self._chunk_rows):
                yield rows[start : start + self._chunk_rows]

    @abstractmethod
    def _parsed(self, piece: bytes) -> Iterable[FloatArray]:
        """Return the rows of a piece of whole records, in arrays of any length."""

    @abstractmethod
    def _pieces(self) -> Iterator[bytes]:
        """Yield the text from the start as pieces of whole records."""

    @property
    def expected_rows(self) -> int | None:
        if not self._share:  # a pipe or stream of unknown length
            return None
        # Three digits: the estimate is that of the records read so far, divided by their share of the bytes.
        return int(float(f"{max(0.0, self._count / self._share - self._has_header):.3g}"))

    def _text(self, size: int = 2**20) -> Iterator[bytes]:
        """Yield the text from the start, about ``size`` bytes at a time; `SourceError` at damage or the limit."""
        blocks = self._decompressed(size if self._is_utf8 else size // 4)  # a byte becomes at most 4 of UTF-8
        first = b""
        while len(first) < 4 and (block := next(blocks, b"")):
            first += block
        marks = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE
        if self._is_utf8 and self._has_header and first.startswith(marks):
            raise SourceError(self.name, "this is UTF-16 text; pass encoding='utf-16'")
        texts: Iterator[bytes] = chain([first], blocks)
        if not self._is_utf8:
            # Privacy: strict decoding would end the run at a byte of one record.
            decoder = codecs.getincrementaldecoder(self._encoding)("replace")
            decoded = (decoder.decode(block, final=not block) for block in chain(texts, [b""]))
            texts = (text.encode() for text in decoded if text)
        try:
            yield next(texts, b"").removeprefix(codecs.BOM_UTF8)
            yield from texts
        except UnicodeError as error:
            raise SourceError(self.name, f"not {self._encoding} text ({reason(error)}); pass encoding=") from error

    def _decompressed(self, size: int) -> Iterator[bytes]:
        try:
            with contextlib.ExitStack() as stack:
                is_path = isinstance(self._source, (str, os.PathLike))
                kind: Any = _Unclosed if not is_path else _Followed if self._follow else io.FileIO
                plain = kind(self._source)
                if isinstance(plain, _Followed):
                    plain.idle = lambda: self._idle()
                raw: Any = stack.enter_context(io.BufferedReader(plain))
                length = 0 if self._once else os.fstat(raw.fileno()).st_size
                # Privacy: without a header line, the first bytes belong to a record, which must not decide for all.
                if not self._has_header:
                    packed = Path(self.name).suffix.lower()
                else:
                    magic = raw.peek(4)[:4]
                    zipped = magic in (b"PK\x03\x04", b"PK\x05\x06")
                    packed = ".gz" if magic.startswith(b"\x1f\x8b") else ".zip" if zipped else ""
                # `counted` measures progress in the same bytes as `length`.
                stream = counted = raw
                limit = self._max_bytes if packed in (".gz", ".zip") else None
                if packed in (".gz", ".zip") and self._follow:
                    raise SourceError(self.name, "a compressed file cannot be followed; pass it through zcat")
                if packed == ".gz":
                    stream = stack.enter_context(gzip.GzipFile(fileobj=raw, mode="rb"))
                elif packed == ".zip":
                    if not raw.seekable():
                        raise SourceError(self.name, "a zip archive cannot be read from a pipe or stream; use gzip")
                    archive = stack.enter_context(zipfile.ZipFile(raw))
                    names = [m for m in archive.namelist() if not m.endswith("/") and not m.startswith("__MACOSX/")]
                    if len(names) != 1:
                        raise SourceError(self.name, f"holds {len(names)} files, expected one: {listed(names)}")
                    # The archive's own position runs far ahead of the member's.
                    stream = counted = stack.enter_context(archive.open(names[0]))
                    length = archive.getinfo(names[0]).file_size
                # `read1` of a pipe returns the bytes that are there, so that rows of a live stream do not wait.
                read, total = stream.read1 if self._once else stream.read, 0
                if length and limit is None:  # full-size buffers for many small files would fragment the heap
                    size = min(size, length + 1)
                while block := read(size):
                    total += len(block)
                    self._share = counted.tell() / length if length else 0.0
                    if limit is not None and total > limit:
                        raise SourceError(self.name, f"expands to more than {limit} bytes; pass a larger max_bytes=")
                    yield block
        except _DAMAGE as error:
            problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise SourceError(self.name, f"cannot be read: {problem}; check the path or the file") from error

    def whole_records(
        self, blocks: Iterable[bytes], delimiter: str | None = None, *, longest: int = LONGEST_RECORD,
        header: bool = False,
    ) -> Iterator[bytes]:  # fmt: skip
        """Yield the text as non-empty pieces that end where records end; the last record may lack its line end."""
        # `OVERLONG` replaces each record of more than ``longest`` bytes, and `UNCLOSED` the last one if the text ends
        # in its quotes. With ``header``, the first record may have up to 16 MiB, and all others 4 times its length.
        # ``delimiter`` is None if quotes are characters. A block has at most ``longest`` bytes behind the first line.
        limit = LONGEST_HEADER if header else longest
        buffer: list[bytes | memoryview] = []
        length, state = 0, b""  # bytes of the unfinished record, and a text that ends in the same state of its cell
        self._count = 0
        # Only the first record of a block can be too long: the others lie within the block.
        for block in blocks:
            if delimiter is None or (b'"' not in block and state != b'"'):
                first, last = block.find(b"\n") + 1, block.rfind(b"\n") + 1
                self._count += block.count(b"\n")
                state = b"x" if delimiter is not None and not block.endswith((b"\n", delimiter.encode())) else b""
            else:
                # `state` replaces all the text before, so that a record may span any number of blocks.
                ends, after = record_ends(state + block, delimiter)
                first, last = (int(ends[at]) - len(state) for at in (0, -1)) if ends.size else (0, 0)
                state = after
                self._count += ends.size
            length += first - 1 if first else len(block)
            if length <= limit:
                buffer.append(block[:first] if first else block)
            elif header:
                raise SourceError(self.name, f"the first line is longer than {limit} bytes; is this a table of text?")
            else:
                buffer = []
            if first:
                if length > limit:
                    yield OVERLONG
                if header:
                    limit, header = max(longest, 4 * length), False
                buffer.append(memoryview(block)[first:last])  # copied only once, by join
                if piece := b"".join(buffer):
                    yield piece
                buffer, length = [block[last:]], len(block) - last
        if state == b'"':
            yield UNCLOSED
        elif length:
            self._count += 1
            yield b"".join(buffer) if length <= limit else OVERLONG


class _Followed(io.FileIO):
    """A file or named pipe without end: reading waits for more bytes."""

    idle: Callable[[], object]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        if stat.S_ISFIFO(os.fstat(self.fileno()).st_mode):
            os.set_blocking(self.fileno(), False)  # reading a pipe would wait without a call of `idle`

    def readinto(self, buffer: Any) -> int | None:
        while not (count := super().readinto(buffer)):  # 0 at the end of a file, None of a pipe without bytes
            self.idle()
            time.sleep(_POLL)
        return count


@dataclass(eq=False, repr=False)
class _Unclosed(io.RawIOBase):
    """A binary stream that stays open when its readers are closed."""

    _stream: Any

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        # At most what is there: a live stream must not wait for a full buffer.
        count: int | None = getattr(self._stream, "readinto1", self._stream.readinto)(buffer)
        return count
