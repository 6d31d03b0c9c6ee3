"""Many readers, one curator: readers sum rows into exact blocks, the curator creates the releases. Curator only.

A block is an exact sum of raw rows and as secret as the rows: encrypt the transport, and trust readers as the curator.
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
from streampca.linalg.types import IntArray
from streampca.rows.admission import NO_COUNTS, Counts
from streampca.rows.protocol import Part, Position
from streampca.stream.blocks import BlockCutter, BlockGram, admission_mark
from streampca.stream.step import BlockStep
from streampca.stream.stream import Stream

_POLL = 1.0  # seconds between two looks at a folder that is followed
_CARRY = 2**20  # blocks after which low parts are carried: their sum stays far below 2**63


class PartSource(Protocol):
    """A source of packed blocks: a topic with ``value="block"``, or a `BlockFolder`."""

    name: str

    def parts_from(self, at: Any = None) -> Iterator[Part]: ...


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
    """Yield the packed blocks of a reader. Rows that fill no block are dropped.

    Parameters
    ----------
    cutter : `Stream.leaves` of the stream, pickled. Public settings only.
    chunks : raw rows in pieces of any length: arrays, tables or sequences of rows.
    reader : number of the reader, from 0.
    rows : rows in a block, the same for all readers.
    number : number of the first block. After a restart, continue with any block that was sent, from its first row.

    Raises
    ------
    BadRowError
        If a row is bad and the admission raises.
    """
    admission, buffer = cutter.admission, np.empty((0, cutter.admission.n_features or 0))
    mark = admission_mark(admission)
    for chunk in chunks:
        values = admission.all_values(as_block(chunk), number * rows + len(buffer) + 1)
        buffer = np.concatenate([buffer, values])
        # Rows are numbered by their place in the reader's own stream, for messages.
        while len(buffer) >= rows:
            admitted, marks = admission.block(buffer[:rows], number * rows + 1)
            counts = marks.counts()
            block = BlockGram.of(admitted, counts=counts, admission=mark)
            high, low = (part.astype("<i8").tobytes() for part in (block.high, block.low))
            yield _ENCODE(
                _Packed(
                    int(reader), int(number), rows, mark, [*map(int, counts.zeroed)], int(counts.scaled),
                    None if counts.clamped is None else counts.clamped.tolist(),
                    divmod(int(counts.squares), 2**UNIT_BITS), high, low,  # integers of msgpack have 64 bits
                )
            )  # fmt: skip
            buffer, number = buffer[rows:], number + 1


def write_blocks(folder: str | os.PathLike[str], name: str, packed: Sequence[bytes]) -> Path:
    """Write packed blocks into a folder, as a Parquet file that appears whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(folder) / f"{name}.parquet"
    part = path.with_suffix(".part")
    pq.write_table(pa.table({"block": pa.array(packed, pa.binary())}), part, compression="zstd")
    part.replace(path)
    return path


class BlockFolder:
    """Packed blocks in the Parquet files of a folder, by `write_blocks`.

    A position holds the names, times and sizes of the files that were read and still exist, so that a restart reads
    only files with blocks of an open round. A file that is replaced is read again. Remove files whose rounds are
    durable. With ``follow``, it looks for more files every second.
    """

    def __init__(self, folder: str | os.PathLike[str], *, follow: bool = False) -> None:
        self._folder, self._follow = Path(folder), follow
        self.name = f"blocks in {self._folder.name}"
        self._files: dict[str, Path] = {}

    def parts_from(self, at: Any = None) -> Iterator[Part]:
        """Yield the blocks of each file, in the order of their names."""
        import pyarrow.parquet as pq

        read: list[str] = list(at or [])
        while True:
            self._files = {}
            for path in self._folder.glob("*.parquet"):
                with suppress(FileNotFoundError):  # removed since the listing
                    stat = path.stat()
                    # Time and size distinguish a file from another one with its name.
                    self._files[f"{path.name} {stat.st_mtime_ns} {stat.st_size}"] = path
            new = sorted(self._files.keys() - set(read))
            for stamp in new:
                path = self._files[stamp]
                blocks = pq.read_table(path)["block"].to_pylist()
                read.append(stamp)
                after = partial(self._after, read, len(read), len(blocks))
                yield Part(blocks, after, partial("{}, entry {}".format, path.name))
            # After the last file, look again: others may have appeared meanwhile.
            if not new:
                if not self._follow:
                    return
                time.sleep(_POLL)

    def _after(self, read: list[str], files: int, blocks: int, m: int) -> list[str]:
        """Return the files that were read and still exist; the last of them only after all its blocks."""
        return [stamp for stamp in read[: files if m == blocks else files - 1] if stamp in self._files]


class _Round:
    """Sum of the blocks of a round that have arrived. ``place()`` is the source's position before the first of them."""

    def __init__(self, readers: int, size: int, place: Callable[[], Any]) -> None:
        self.place, self.left, self.counts = place, readers, NO_COUNTS
        self._digests = np.zeros(readers, dtype=np.uint64)
        self._high, self._low = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)

    def add(self, packed: _Packed, data: bytes) -> None:
        """Add a block, packed as ``data``. Idempotent for a repeated block."""
        digest = int.from_bytes(blake2b(data, digest_size=8).digest(), "little") | 1  # not 0, which means no block
        if self._digests[packed.reader]:
            if self._digests[packed.reader] != digest:
                raise SourceError(f"reader {packed.reader} sent two different blocks {packed.number}")
            return
        high, low = (np.frombuffer(part, dtype="<i8") for part in (packed.high, packed.low))
        clamped = None if packed.clamped is None else np.asarray(packed.clamped, dtype=np.int64)
        squares = (packed.squares[0] << UNIT_BITS) + packed.squares[1]
        counts = Counts(tuple(packed.zeroed), packed.scaled, clamped, squares)
        # Privacy hazard: a reader's bytes are not checked yet. The constructor refuses all but Gram matrices of rows
        # in the unit ball, so that no block exceeds the sensitivity.
        BlockGram(high, low, packed.count, counts)
        self._digests[packed.reader] = digest
        self._high += high
        self._low += low
        self.counts = self.counts.plus(counts)
        self.left -= 1
        if self.left % _CARRY == 0:
            self._high, self._low = self.sums()

    def sums(self) -> tuple[IntArray, IntArray]:
        """Return the entries of the sum, in units of 1 and of 2**-40."""
        return self._high + (self._low >> UNIT_BITS), self._low & LOW


def collect(stream: Stream, source: PartSource, *, readers: int, rows: int, close: int = 0) -> Iterator[BlockStep]:
    """Absorb the blocks of all readers, a round at a time.

    Block n of reader r holds its rows n·m + 1 to (n + 1)·m. The rows of the stream are those of round 0, of all readers
    in ascending order, then of round 1, and so on. A round is absorbed when all its blocks have arrived. A repeated
    block is dropped; another block with the id of one is an error.

    Parameters
    ----------
    stream : a stream whose algorithm accepts blocks (`Stream.push_block`) and whose features are known. No release may
        be due within a round: ``readers * rows`` divides its ``release_every``.
    source : source of the blocks.
    readers : number of readers, which are numbered from 0.
    rows : rows in a block.
    close : rounds before this one are absorbed at the end of the source even if blocks are missing. These count as zero
        rows and are dropped if they arrive later. When to close must not depend on rows.

    Yields
    ------
    BlockStep : one a round.

    Raises
    ------
    BadParameterError, BadRowError, SourceError
        If a parameter or a block does not fit, or two blocks of one id differ. The message names the place of the
        block. Earlier rounds are absorbed.

    Notes
    -----
    Sums are exact: the releases are those of one process that absorbs all rows in the order of the rounds. A durable
    stream keeps, in the transaction of a round, the number of the next round and the position of the source before the
    first block of any later round. After a crash, reading resumes there.
    """
    check_count("readers", readers)
    check_count("rows", rows)
    cutter = stream.leaves()
    if cutter.release_every % (readers * rows):
        raise BadParameterError(f"release_every must be a multiple of {readers} readers times {rows} rows")
    mark, size = admission_mark(cutter.admission), svec_size(cutter.admission.admitted_features or 0)
    position = stream.engine.position_in(source.name)
    if position is None and stream.t:
        raise BadParameterError("this stream has rows already; resume it from its store, or begin with a new stream")
    due, begin = (0, None) if position is None else (int(position["round"]), position["at"])
    rounds: dict[int, _Round] = {}  # open rounds, in the order of their first blocks
    place: Callable[[], Any] = lambda: begin  # noqa: E731  the position of the source

    def absorb_round() -> BlockStep:
        nonlocal due
        one = rounds.pop(due, None) or _Round(readers, size, place)
        # Blocks that have not arrived count as zero rows.
        block = BlockGram(*one.sums(), readers * rows, one.counts, None, mark)
        due += 1
        # A restart reads again from the first block of any open round.
        first = next(iter(rounds.values()), None)
        at = {"round": due, "at": (place if first is None else first.place)()}
        return stream.engine.push_block(block, position=Position(source.name, at))

    for part in source.parts_from(begin):
        for m, data in enumerate(part.blocks):
            try:
                try:
                    packed = _DECODE(data)
                except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
                    raise BadRowError(f"this is no block of a reader ({problem})") from problem
                number, reader = packed.number, packed.reader
                if reader >= readers or packed.count != rows:
                    raise BadParameterError(
                        f"{packed.count} rows of reader {reader}: {readers} readers send {rows} rows"
                    )
                if packed.admission != mark:
                    raise BadParameterError(f"reader {reader} admits rows with other settings; use stream.leaves()")
                if not len(packed.high) == len(packed.low) == 8 * size:
                    raise BadRowError(f"a block {number} of reader {reader} is damaged; let the reader send it again")
                # A block of a closed round was absorbed before, or counts as zero rows.
                if number >= due:
                    if number not in rounds:
                        rounds[number] = _Round(readers, size, place)
                    rounds[number].add(packed, data)
            except (BadParameterError, BadRowError, SourceError) as problem:
                raise type(problem)(f"{source.name}, {part.place(m)}: {problem}") from problem
            place = partial(part.after, m + 1)
            while due in rounds and not rounds[due].left:
                yield absorb_round()
    while due < close:
        yield absorb_round()
