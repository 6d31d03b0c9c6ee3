"""Batches of open Parquet files, and the errors of damaged ones. Modules of pyarrow are imported when needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from streampca.errors import SourceError, reason

#: Default number of rows in a block: one exact fold of the Gram accumulator.
BLOCK_ROWS = 8192
#: Rows and numbers that pyarrow decodes at a time: 32 MB at most, from 8192 rows on.
_BATCH_ROWS, _BATCH_NUMBERS = 2**16, 2**22
#: Further exceptions of pyarrow on damaged files.
_DAMAGE = (ValueError, TypeError, KeyError, OverflowError, MemoryError)


def read_batches(
    file: Any, columns: Sequence[str], groups: Sequence[int] | None = None, *, small: int = BLOCK_ROWS, numbers: int = 0
) -> Iterator[Any]:
    """Yield the columns of some row groups of a ``ParquetFile``, in batches that justify the overhead of a call.

    Large row groups are read one by one, so that a damaged one costs no row of those before it. If groups are smaller
    than a block, batches of ``small`` rows span several. Rows have ``numbers`` numbers, where columns are lists.
    """
    metadata, options = file.metadata, {"columns": columns, "use_threads": False}
    if metadata.num_rows < BLOCK_ROWS * metadata.num_row_groups:
        yield from file.iter_batches(small, row_groups=groups, **options)
        return
    size = min(_BATCH_ROWS, max(BLOCK_ROWS, _BATCH_NUMBERS // (numbers or len(columns))))
    for group in range(metadata.num_row_groups) if groups is None else groups:
        yield from file.iter_batches(size, row_groups=[group], **options)


@contextmanager
def damage(where: object, problem: str) -> Iterator[None]:
    """Turn every error of pyarrow on a file, and its absence, into a `SourceError`."""
    try:
        import pyarrow as pa

        yield
    except ImportError as error:
        raise SourceError(where, "needs pyarrow; install it with pip install 'streampca[parquet]'") from error
    except (OSError, pa.ArrowException, *_DAMAGE) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(where, f"{problem}: {reason(error)}; check the path, or make the file again") from error
