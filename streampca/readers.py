"""Many readers, one curator: readers sum their rows into exact blocks, the curator makes the releases. Curator only.

A reader, anywhere:

    for packed in reader_blocks(cutter, chunks, reader=17, rows=100):
        producer.produce("blocks", packed)               # or write_blocks(folder, "reader-17-0", [packed, ...])

The curator:

    source = from_kafka("blocks", "curator", servers=..., features=names, value="block", follow=True)
    for step in collect(stream, source, readers=1000, rows=100):      # or BlockFolder(folder)
        step.release

*Order.* A block's id is (reader, number): reader r's block n holds its rows n·m + 1 to (n + 1)·m. The rows of the
stream are those of round 0, of all readers in ascending order, then of round 1, and so on. Sums are exact, so the
order in which blocks arrive carries no meaning: the releases are those of one process that is fed all rows in that
order.

*Late, double, missing.* A round is absorbed once all its blocks are there; a late block holds it up. A block that comes
again is dropped; another block with the id of one is an error. `collect` with ``close=n`` gives up waiting for rounds
before n: what is missing counts as zero rows, and is dropped if it comes later. When to close must not depend on rows.

*Once.* A durable stream keeps, in the transaction of a round, the number of the next one and where the source stood
before the first block of any later round. After a crash, reading goes on there.

A block is an exact sum of raw rows, a secret like the rows: encrypt the way, and trust readers as the curator.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np

from streampca.conversion import as_block
from streampca.errors import BadParameterError, BadRowError, SourceError
from streampca.linalg.counts import check_count
from streampca.linalg.lattice import LOW, UNIT_BITS
from streampca.linalg.svec import svec_size
from streampca.rows.admission import NO_COUNTS, Counts
from streampca.rows.protocol import Part, Position
from streampca.stream.blocks import BlockCutter, BlockGram, admission_mark
from streampca.stream.step import BlockStep
from streampca.stream.stream import Stream

_POLL = 1.0  # seconds between two looks at a folder that is followed
_CARRY = 2**20  # blocks after which low parts are carried: their sum stays far below 2**63


class PartSource(Protocol):
    """Where packed blocks come from: a topic with ``value="block"``, or a `BlockFolder`."""

    name: str

    def parts_from(self, at: Any = None) -> Iterator[Part]:
        """Packed blocks after a position."""


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class _Packed(msgspec.Struct, array_like=True):
    reader: _Count
    number: _Count
    count: _Count
    admission: str
    zeroed: list[_Count]
    scaled: _Count
    clamped: list[_Count] | None
    squares: tuple[_Count, _Count]
    high: bytes
    low: bytes


_ENCODE, _DECODE = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(_Packed).decode


def reader_blocks(
    cutter: BlockCutter, chunks: Iterable[Any], *, reader: int, rows: int, number: int = 0
) -> Iterator[bytes]:
    """The packed blocks of a reader; rows that fill no block are left.

    Parameters
    ----------
    cutter : of the stream: `Stream.leaves`, pickled. Public settings only.
    chunks : raw rows of any number: arrays, tables or sequences of rows.
    reader : number of the reader, from 0.
    rows : of a block, the same for all readers.
    number : of the first block. After a restart, go on with any that was sent, from its first row.

    Raises
    ------
    BadRowError
        If a row is bad and the admission raises.
    """
    admission, held = cutter.admission, np.empty((0, cutter.admission.n_features or 0))
    mark = admission_mark(admission)
    for chunk in chunks:
        values = admission.all_values(as_block(chunk), number * rows + len(held) + 1)
        held = np.concatenate([held, values])
        while len(held) >= rows:
            admitted, marks = admission.block(held[:rows], number * rows + 1)
            counts = marks.counts()
            clamped = None if counts.clamped is None else counts.clamped.tolist()
            block = BlockGram.of(admitted, counts=counts, admission=mark)
            squares = divmod(int(counts.squares), 2**UNIT_BITS)
            gram = [part.astype("<i8").tobytes() for part in (block.high, block.low)]
            done = [*map(int, counts.zeroed)], int(counts.scaled), clamped, squares
            yield _ENCODE(_Packed(int(reader), int(number), rows, mark, *done, *gram))
            held, number = held[rows:], number + 1


def write_blocks(folder: str | os.PathLike[str], name: str, packed: Sequence[bytes]) -> Path:
    """Put packed blocks into a folder, as a Parquet file that appears whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(folder) / f"{name}.parquet"
    part = path.with_suffix(".part")
    pq.write_table(pa.table({"block": pa.array(packed, pa.binary())}), part, compression="zstd")
    part.replace(path)
    return path


class BlockFolder:
    """Packed blocks in the Parquet files of a folder, by `write_blocks`.

    A position holds the names, times and sizes of the files that were read and are still there, so a restart reads
    those only that hold blocks of an open round. A file that is replaced is read again. Remove files whose rounds are
    durable.

    Parameters
    ----------
    folder : the folder.
    follow : look for more files, every second.
    """

    def __init__(self, folder: str | os.PathLike[str], *, follow: bool = False) -> None:
        self._folder, self._follow = Path(folder), follow
        self.name = f"blocks in {self._folder.name}"
        self._there: dict[str, Path] = {}

    def parts_from(self, at: Any = None) -> Iterator[Part]:
        """The blocks of each file, in the order of their names."""
        import pyarrow.parquet as pq

        read: list[str] = list(at or [])
        seen = set(read)
        while True:
            self._there = {}
            for path in self._folder.glob("*.parquet"):
                with suppress(FileNotFoundError):  # removed meanwhile
                    stat = path.stat()
                    # Time and size tell a file from another one that takes its name.
                    self._there[f"{path.name} {stat.st_mtime_ns} {stat.st_size}"] = path
            new = sorted(self._there.keys() - seen)
            for stamp in new:
                path = self._there[stamp]
                blocks = pq.read_table(path)["block"].to_pylist()
                read.append(stamp)
                seen.add(stamp)
                yield Part(
                    blocks,
                    partial(self._after, read, len(read), len(blocks)),
                    partial("{}, entry {}".format, path.name),
                )
            if not new:
                if not self._follow:
                    return
                time.sleep(_POLL)

    def _after(self, read: list[str], files: int, blocks: int, m: int) -> list[str]:
        """The files that were read and are there; the last one of them once all its blocks were taken."""
        return [stamp for stamp in read[: files if m == blocks else files - 1] if stamp in self._there]


class _Round:
    """The sum of the blocks of a round that have come."""

    def __init__(self, readers: int, rows: int, size: int, place: Callable[[], Any]) -> None:
        self.place, self._rows = place, rows  # where the source stood before its first block
        self._seen = np.zeros(readers, dtype=np.uint64)
        self._high, self._low = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        self._counts, self.left = NO_COUNTS, readers

    def add(self, packed: _Packed, digest: int) -> None:
        """Add a block; one that comes again changes nothing."""
        if self._seen[packed.reader]:
            if self._seen[packed.reader] != digest:
                raise SourceError(
                    f"reader {packed.reader} sent two different blocks {packed.number}: "
                    "what it sends again must be of the same rows"
                )
            return
        high, low = (np.frombuffer(part, dtype="<i8") for part in (packed.high, packed.low))
        clamped = None if packed.clamped is None else np.asarray(packed.clamped, dtype=np.int64)
        counts = Counts(
            tuple(packed.zeroed), packed.scaled, clamped, (packed.squares[0] << UNIT_BITS) + packed.squares[1]
        )
        BlockGram(high, low, packed.count, counts)  # raises if it is no Gram matrix of so many rows
        self._seen[packed.reader] = digest
        self._high += high
        self._low += low
        self._counts = self._counts.plus(counts)
        self.left -= 1
        if self.left % _CARRY == 0:
            self._high += self._low >> UNIT_BITS
            self._low &= LOW

    def block(self, admission: str) -> BlockGram:
        """The sum of the round; what has not come counts as zero rows."""
        high, low = self._high + (self._low >> UNIT_BITS), self._low & LOW
        return BlockGram(high, low, len(self._seen) * self._rows, self._counts, None, admission)


def collect(stream: Stream, source: PartSource, *, readers: int, rows: int, close: int = 0) -> Iterator[BlockStep]:
    """Absorb the blocks of all readers, a round at a time.

    Parameters
    ----------
    stream : whose algorithm takes blocks (`Stream.push_block`) and known features; no release may be due within a
        round: ``readers * rows`` divides its ``release_every``.
    source : where blocks come from.
    readers : how many there are; they are numbered from 0.
    rows : of a block.
    close : rounds before this one are absorbed even if blocks are missing, once the source ends.

    Yields
    ------
    BlockStep : one a round.

    Raises
    ------
    BadParameterError, BadRowError, SourceError
        If a parameter or a block does not fit, or two blocks of one id differ: the message says where the block is.
        Rounds before are absorbed.
    """
    check_count("readers", readers)
    check_count("rows", rows)
    cutter = stream.leaves()
    if cutter.release_every % (readers * rows):
        raise BadParameterError(
            f"{readers} readers of {rows} rows are {readers * rows} rows a round; release_every must be a multiple"
        )
    mark, size = admission_mark(cutter.admission), svec_size(cutter.admission.admitted_features or 0)
    stands = stream.engine.position_in(source.name)
    if stands is None and stream.t:
        raise BadParameterError("this stream has rows already; go on from its store, or begin with a new stream")
    due, begin = (0, None) if stands is None else (int(stands["round"]), stands["at"])
    rounds: dict[int, _Round] = {}

    place: Callable[[], Any] = lambda: begin  # noqa: E731  where the source stands

    def absorbed() -> BlockStep:
        nonlocal due
        done = rounds.pop(due, None) or _Round(readers, rows, size, place)
        due += 1
        first = next(iter(rounds.values()), None)  # of the open rounds, that whose first block came first
        at = {"round": due, "at": (place if first is None else first.place)()}
        return stream.engine.push_block(done.block(mark), position=Position(source.name, at))

    for part in source.parts_from(begin):
        for m, data in enumerate(part.blocks):
            try:
                packed = _unpacked(data, readers, rows, mark, 8 * size)
                if packed.number >= due:
                    if packed.number not in rounds:
                        rounds[packed.number] = _Round(readers, rows, size, place)
                    digest = int.from_bytes(blake2b(data, digest_size=8).digest(), "little") | 1
                    rounds[packed.number].add(packed, digest)
            except (BadParameterError, BadRowError, SourceError) as problem:
                raise type(problem)(f"{source.name}, {part.place(m)}: {problem}") from problem
            place = partial(part.after, m + 1)
            while due in rounds and not rounds[due].left:
                yield absorbed()
    while due < close:
        yield absorbed()


def _unpacked(data: bytes, readers: int, rows: int, mark: str, size: int) -> _Packed:
    try:
        packed = _DECODE(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise BadRowError(f"this is no block of a reader ({problem}); remove what else is written there") from problem
    if packed.reader >= readers or packed.count != rows:
        raise BadParameterError(
            f"a block {packed.number} of {packed.count} rows of reader {packed.reader}; "
            f"{readers} readers send {rows} rows"
        )
    if packed.admission != mark:
        raise BadParameterError(
            f"reader {packed.reader} admits rows with other settings or another version; use stream.leaves()"
        )
    if len(packed.high) != size or len(packed.low) != size:
        raise BadRowError(f"a block {packed.number} of reader {packed.reader} is damaged; let the reader send it again")
    return packed
