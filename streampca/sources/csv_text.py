"""The bytes of a text file, decompressed, as UTF-8 pieces that end where lines end."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from streampca.errors import BadParameter, SourceError

_LONGEST_LINE = 2**26
_BOM = codecs.BOM_UTF8
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def is_utf8(encoding: str) -> bool:
    """True if text in this encoding is UTF-8 as it stands."""
    try:
        return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii")
    except (LookupError, TypeError) as error:
        raise BadParameter(f"encoding={encoding!r} is not known; 'utf-8', 'latin-1', 'cp1252' are some") from error


def pieces(path: Path, *, size: int, encoding: str, max_bytes: int | None) -> Iterator[bytes]:
    """Pieces of about `size` bytes, each ending with a line end (the last one may not).

    Parameters
    ----------
    path : the file; gzip and zip (one member) are recognised by their first bytes.
    size : bytes to read at a time.
    encoding : of the file; a byte order mark is left out.
    max_bytes : most bytes that a compressed file may expand to.

    Raises
    ------
    SourceError
        If the file cannot be opened, is damaged, expands too far, or has a
        line longer than 64 MiB; whole lines read before are yielded first.
    """
    held: list[bytes | memoryview] = []
    length = 0
    problem: SourceError | None = None
    blocks = _utf8(path, size=size, encoding=encoding, max_bytes=max_bytes)
    while True:
        try:
            block = next(blocks, b"")
        except SourceError as error:
            block, problem = b"", error
        if not block:
            break
        cut = block.rfind(b"\n") + 1
        if cut:
            held.append(memoryview(block)[:cut])  # copied once, by join
            yield b"".join(held)
            held, length = [block[cut:]], len(block) - cut
        else:
            held.append(block)
            length += len(block)
        if length > _LONGEST_LINE:
            raise SourceError(
                f"{path}: no line end within {_LONGEST_LINE} bytes; is this a text file with one row a line?"
            )
    if problem is not None:
        raise problem
    if length:
        yield b"".join(held)


def _utf8(path: Path, *, size: int, encoding: str, max_bytes: int | None) -> Iterator[bytes]:
    blocks = _decompressed(path, size=size, max_bytes=max_bytes)
    if is_utf8(encoding):
        first = next(blocks, b"")
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise SourceError(f"{path}: this is UTF-16 text; pass encoding='utf-16'")
        yield first.removeprefix(_BOM)
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for block in blocks:
            if text := decoder.decode(block):
                yield text.encode()
        if text := decoder.decode(b"", final=True):
            yield text.encode()
    except UnicodeError as error:
        raise SourceError(f"{path}: this is not {encoding} text ({error}); pass another encoding=") from error


def _decompressed(path: Path, *, size: int, max_bytes: int | None) -> Iterator[bytes]:
    try:
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(path.open("rb", buffering=0))
            stream, limit = _open(path, raw, stack, max_bytes)
            read = 0
            while block := stream.read(size):
                read += len(block)
                if limit is not None and read > limit:
                    raise SourceError(f"{path}: expands to more than {limit} bytes; pass max_bytes= if that is meant")
                yield block
    except _DAMAGE as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SourceError(f"{path}: cannot be read: {reason}; check the path, or make the file again") from error


def _open(
    path: Path, raw: IO[bytes], stack: contextlib.ExitStack, limit: int | None
) -> tuple[IO[bytes] | gzip.GzipFile, int | None]:
    """The decompressed stream, and the limit if the file is compressed."""
    magic = raw.read(4)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return stack.enter_context(gzip.GzipFile(fileobj=raw, mode="rb")), limit
    if magic in (b"PK\x03\x04", b"PK\x05\x06"):
        archive = stack.enter_context(zipfile.ZipFile(raw))
        members = [m for m in archive.namelist() if not m.endswith("/") and not m.startswith("__MACOSX/")]
        if len(members) != 1:
            some = ", ".join(members[:4]) + (", ..." if len(members) > 4 else "")
            raise SourceError(f"{path}: holds {len(members)} files ({some}); make an archive of one")
        return stack.enter_context(archive.open(members[0])), limit
    return raw, None
