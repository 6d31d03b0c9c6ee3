"""Many readers, one curator: readers sum rows into exact blocks, the curator creates the releases. Curator only.

A block is an exact sum of raw rows and as secret as the rows: encrypt the transport, and trust readers as the curator.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from streampca.conversion import as_block, unreadable
from streampca.errors import BadRowError, SourceError, StreamPCAError, UsageError, reason
from streampca.linalg.counts import check_count
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.rows.admission import NO_COUNTS, Counts
from streampca.rows.protocol import Part, Position
from streampca.store.records import decode, encode
from streampca.stream.blocks import BlockCutter, BlockGram, admission_mark
from streampca.stream.step import Step
from streampca.stream.stream import Stream


def pack(origin: int, block: BlockGram) -> bytes:
    """Return a block as bytes, with the number of the process that summed it."""
    return encode([origin, block.high, block.low, block.count, block.counts.plain(), block.first, block.admission])


def unpack(data: bytes) -> tuple[int, BlockGram]:
    """Inverse of `pack`. Raises `BadRowError` for any other bytes, and unless the block is plausible."""
    try:
        origin, high, low, count, counts, first, admission = decode(data)
        # Privacy hazard: the bytes are not checked yet. The constructor refuses all but Gram matrices of rows in the
        # unit ball, so that no block exceeds the sensitivity.
        return int(origin), BlockGram(high, low, int(count), Counts.of_plain(counts), int(first), str(admission))
    except (StreamPCAError, TypeError, ValueError, OverflowError) as problem:
        raise BadRowError(None, f"this is no block of a reader ({reason(problem)})") from problem


def reader_blocks(
    cutter: BlockCutter, chunks: Iterable[Any], *, reader: int, rows: int, number: int = 0
) -> Iterator[bytes]:
    """Yield the packed blocks of a reader. Rows that fill no block are dropped.

    Parameters
    ----------
    cutter : `Stream.leaves` of the stream, pickled. Public settings only.
    chunks : raw rows in pieces of any length: arrays, tables or sequences of rows.
    reader : number of the reader, from 0.
    rows : rows in a block, the same for all readers.
    number : number of the first block. After a restart, continue with any block that was sent, from its first row.
    """

    def values() -> Iterator[FloatArray]:
        at = number * rows  # rows are numbered by their place in the reader's own stream
        for chunk in chunks:
            found = cutter.admission.all_values(as_block(chunk), at + 1)
            at += len(found)
            yield found

    for block in replace(cutter, release_every=rows, horizon=None).blocks(values(), number * rows):
        # A shorter last block is dropped: the round would wait for its other rows.
        if block.count == rows:
            yield pack(int(reader), block)


def write_blocks(folder: str | os.PathLike[str], name: str, packed: Sequence[bytes]) -> Path:
    """Write packed blocks into a folder, as a Parquet file that appears whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(folder) / f"{name}.parquet"
    part = path.with_suffix(".part")
    pq.write_table(pa.table({"block": pa.array(packed, pa.binary())}), part, compression="zstd")
    # A rename is atomic: a curator never reads half a file.
    part.replace(path)
    return path


class BlockFolder:
    """Packed blocks in the Parquet files of a folder, by `write_blocks`.

    A position holds the names, times and sizes of the files that were read and still exist, so that a restart reads
    only files with blocks of an open round. A file that is replaced is read again. Remove files whose rounds are
    durable. For files that appear later, call `collect` again.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self.name = f"blocks in {self._folder.name}"

    def parts_from(self, at: Any = None) -> Iterator[Part]:
        """Yield the blocks of each file, in the order of their names."""
        import pyarrow.parquet as pq

        files: dict[str, Path] = {}
        for path in self._folder.glob("*.parquet"):
            with suppress(FileNotFoundError):  # removed since the listing
                stat = path.stat()
                # Time and size distinguish a file from another one with its name.
                files[f"{path.name} {stat.st_mtime_ns} {stat.st_size}"] = path
        read = [stamp for stamp in at or [] if stamp in files]

        def after(count: int, blocks: int, m: int) -> list[str]:
            # A file counts as read once all its blocks are.
            return read[: count if m == blocks else count - 1]

        for stamp in sorted(files.keys() - set(read)):
            try:
                blocks = pq.read_table(files[stamp])["block"].to_pylist()
            except Exception as problem:  # those of pyarrow have no common class
                raise unreadable(str(files[stamp]), problem) from None
            read.append(stamp)
            yield Part(
                blocks, partial(after, len(read), len(blocks)), partial("{}, entry {}".format, files[stamp].name)
            )


@dataclass
class _Round:
    """Blocks of a round that have arrived."""

    place: Callable[[], Any]  # position of the source before the first of them
    digests: dict[int, bytes] = field(default_factory=dict)  # of the block of each reader
    sum: BlockGram | None = None


def collect(stream: Stream, source: Any, *, readers: int, rows: int, close: int = 0) -> Iterator[Step]:
    """Absorb the blocks of all readers, a round at a time; yield a `Step` a round.

    Block n of reader r holds its rows n·m + 1 to (n + 1)·m. The rows of the stream are those of round 0, of all readers
    in ascending order, then of round 1, and so on. A round is absorbed when all its blocks have arrived. A repeated
    block is dropped; another block with the id of one is an error.

    Parameters
    ----------
    stream : a stream whose algorithm accepts blocks (`Stream.push_block`) and whose features are known. No release may
        be due within a round: ``readers * rows`` divides its ``release_every``.
    source : source of the blocks: a topic with ``value="block"``, or a `BlockFolder`.
    readers : number of readers, which are numbered from 0.
    rows : rows in a block.
    close : rounds before this one are absorbed at the end of the source even if blocks are missing. Their rows are
        absent, and the blocks are dropped if they arrive later. When to close must not depend on rows.

    Sums are exact: the releases are those of one process that absorbs all rows in the order of the rounds. A durable
    stream keeps, in the transaction of a round, the number of the next round and the position of the source before the
    first block of any later round. After a crash, reading resumes there. Raises `UsageError` or `SourceError` if a
    block does not fit, or two blocks of one id differ; earlier rounds are absorbed.
    """
    check_count("readers", readers)
    check_count("rows", rows)
    cutter = stream.leaves()
    if cutter.release_every % (readers * rows):
        raise UsageError(f"release_every must be a multiple of {readers} readers times {rows} rows")
    mark, zeros = admission_mark(cutter.admission), np.zeros(svec_size(cutter.admission.admitted_features or 0), int)
    position = stream.engine.position_in(source.name)
    if position is None and stream.t:
        raise UsageError("this stream has rows already; resume it from its store, or begin with a new stream")
    due, begin = (0, None) if position is None else (int(position["round"]), position["at"])
    rounds: dict[int, _Round] = {}  # open rounds, in the order of their first blocks
    place: Callable[[], Any] = lambda: begin  # noqa: E731  the position of the source

    def arrive(data: bytes) -> None:
        reader, block = unpack(data)
        number, rest = divmod((block.first or 0) - 1, rows)
        if not 0 <= reader < readers or block.count != rows or rest:
            raise UsageError(f"{block.count} rows of reader {reader}: {readers} readers send {rows} rows")
        if block.admission != mark or block.high.size != zeros.size:
            raise UsageError(f"reader {reader} admits rows with other settings; use stream.leaves()")
        if number < due:
            return  # absorbed before, or closed: its rows are absent
        # The place before the first block of a round is where a restart reads again.
        one = rounds.setdefault(number, _Round(place))
        # A reader that restarts sends blocks again. Their bytes are equal, because sums are exact.
        digest = blake2b(data, digest_size=8).digest()
        if one.digests.get(reader, digest) != digest:
            raise SourceError(f"reader {reader}", f"two different blocks {number}")
        if reader not in one.digests:
            block = replace(block, first=None)
            # Integer sums: the order of arrival does not change a bit.
            one.sum = block if one.sum is None else one.sum.then(block)
            one.digests[reader] = digest

    def absorb_round() -> Step:
        nonlocal due
        found = rounds.pop(due).sum if due in rounds else None
        # The rows of blocks that have not arrived are absent.
        block = replace(found or BlockGram(zeros, zeros, 1, NO_COUNTS, None, mark), count=readers * rows)
        due += 1
        # A restart reads again from the first block of any open round.
        first = next(iter(rounds.values()), None)
        at = {"round": due, "at": (place if first is None else first.place)()}
        return stream.engine.push_block(block, position=Position(source.name, at))

    for part in source.parts_from(begin):
        for m, data in enumerate(part.blocks):
            try:
                arrive(data)
            except (BadRowError, SourceError, UsageError) as problem:
                raise SourceError(f"{source.name}, {part.place(m)}", str(problem)) from problem
            place = partial(part.after, m + 1)
            while due in rounds and len(rounds[due].digests) == readers:
                yield absorb_round()
    while due < close:
        yield absorb_round()
