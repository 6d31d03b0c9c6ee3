"""`sp.pca`: one private release of one whole table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal

import numpy as np

from streampca.conversion import arrow_reader, framed, is_arrow, is_frame
from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.linalg.counts import check_components
from streampca.linalg.scale import Bounds, check_scale
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.guarantee import Account
from streampca.processors.private_fpl import PrivateFPL
from streampca.release.release import Release
from streampca.rows.names import NO_TYPES
from streampca.rows.protocol import RowSource, as_source
from streampca.rows.report import tell_curator
from streampca.sources.base import choose
from streampca.sources.files import open_rows
from streampca.sources.reading import Reading
from streampca.stream.feed import batches
from streampca.stream.stream import Stream

_WHOLE = "a table, or the path of a regular file"
_STREAM = "For rows that arrive one by one use sp.Stream"


def pca(
    data: Any, n_components: int | float, epsilon: float, *, delta: float = DELTA,
    bounds: Bounds | Literal["private"] | None = None, row_norm: float | None = None,
    columns: Sequence[str | int] | None = None, center: bool = True, adjacency: Adjacency = "zero-out",
    account: Account | None = None, seed: int | None = None, read: Reading | None = None,
) -> Release:  # fmt: skip
    """Release the principal components of one whole table.

    For rows that arrive one by one, use `Stream`. For what a release would meet before anything is spent, use `check`.

    Parameters
    ----------
    data : path, frame, Arrow table, sparse matrix, array or list of rows
        The whole table. A path is that of a regular file, CSV, TSV, NDJSON or Parquet, or a pattern of files.
    n_components : int or float
        Number of components; or a share of the variance in (0, 1), from which it is chosen after the release, so that
        the choice costs no privacy.
    epsilon, delta : float
        Budget of the release.
    bounds : pair, mapping or "private", default=None
        Public range of each column: ``{name: (low, high)}``, one ``(low, high)`` for all, or arrays ``(lows, highs)``.
        ``"private"`` finds the ranges from the first rows, at the price of their budget.
    row_norm : float, default=None
        Length of a long row, in place of ``bounds``: longer rows are shortened. Exactly one of the two is given, and
        neither may be computed from the rows.
    columns : sequence of str or int, default=None
        Names or positions of the columns to use. By default those that ``bounds`` names; else all, where the names and
        types of columns do not depend on the rows: arrays, Arrow tables, polars frames and Parquet files.
    center : bool, default=True
        Components about the private mean, of the same release. Without it they are about the middle of the ranges.
    adjacency : {"zero-out", "replace"}, default="zero-out"
    account : Account, default=None
        ``Ledger(file).account(data_set)``, which pays before the first row is absorbed.
    seed : int, default=None
        For tests: not private against a reader who knows it.
    read : Reading, default=None
        How a file is read.

    Returns
    -------
    Release
        Publishable: components, variances, mean, pictures and a file, all post-processing.

    Raises
    ------
    UsageError
        If an argument is outside its domain or the data are no whole table. Nothing was spent.
    SourceError
        If a file cannot be opened, is damaged, or has no rows.
    BudgetExhaustedError
        If the account does not cover the budget.

    Notes
    -----
    *Guarantee.* (epsilon, delta)-DP for one row: that of `PrivateFPL` with one release after all rows, which is the
    Gaussian mechanism. A cell that is missing or no number makes its row absent: the row counts for nothing, also in
    the private mean, and stops nothing. What happened to the rows is a record of the logger ``streampca.curator``.

    Examples
    --------
    >>> rows = [{"age": 20, "height": 1.6}, {"age": 35, "height": 1.8}, {"age": 50, "height": 1.7}] * 1000
    >>> release = sp.pca(rows, 1, epsilon=1.0, bounds={"age": (0, 100), "height": (1, 2)})
    >>> release.components.shape
    (1, 2)
    """
    check_scale(bounds, row_norm)
    k, share = components_or_share(n_components)
    if columns is None and isinstance(bounds, Mapping):
        columns = [str(name) for name in bounds]
    rows, features, d, n = _opened(data, columns, read)
    check_components(k, d)
    if not n:
        raise SourceError(
            data if isinstance(data, (str, os.PathLike)) else None, "no rows; there is nothing to release"
        )
    algorithm = PrivateFPL(
        n_components=k, epsilon=epsilon, delta=delta, adjacency=adjacency, center=center, horizon=n, release_every=n
    )
    stream = Stream(
        algorithm, bounds=bounds, row_norm=row_norm, features=features, regret=None, seed=seed, account=account
    )
    if isinstance(rows, RowSource):
        for batch in batches(stream.engine, rows, limit=n):  # not the rows of a file that has grown since the count
            stream.push_many(batch.rows)
    elif isinstance(rows, list) and isinstance(rows[0], Mapping):
        for row in rows:
            stream.push(row)
    else:
        stream.push_many(rows)
    tell_curator(stream.admission)
    release = stream.release or stream.finish()
    if release is None:
        raise SourceError(None, f"the file had {n} rows when they were counted, and has {stream.t} now")
    return release if share is None else release.holding(share)


def _opened(
    data: Any, columns: Sequence[str | int] | None, read: Reading | None
) -> tuple[Any, tuple[str, ...] | int, int, int]:
    """Return the rows of a whole table, the names of its columns or their number, that number, and that of the rows."""
    if isinstance(data, (str, os.PathLike)):
        options = {} if read is None else {one.name: getattr(read, one.name) for one in fields(read)}
        if options.get("follow") or str(data) == "-":
            raise BadParameterError("data", str(data), _WHOLE, advice=_STREAM)
        source = open_rows(data, columns=columns, **options)
        if (n := source.count_rows()) is None:
            raise BadParameterError("data", str(data), _WHOLE, advice=_STREAM)
        return source, source.features, len(source.features), n
    if read is not None:
        raise UsageError("read= holds options for files. Omit it for rows in memory")
    if isinstance(data, (list, tuple)):
        first = data[0] if data else ()
        if isinstance(first, Mapping):
            names = None if columns is None else tuple(map(str, columns))
            if names is None:
                raise UsageError(f"the table {NO_TYPES}")
            return list(data), names, len(names), len(data)
        if columns is not None:
            raise BadParameterError("columns", columns, "None for rows without names", advice="Select them in data")
        return data, len(first), len(first), len(data)
    data = framed(data)
    if is_arrow(data) and not is_frame(data):
        data = arrow_reader(data).read_all()  # a reader can be read only once
        rows: Any = as_source(data.select(list(choose(data.schema.names, columns, "the table"))))
    elif is_frame(data):
        # Types of pandas follow from the rows: one cell of text changes that of its column.
        if columns is None and hasattr(data, "iloc"):
            raise UsageError(f"the table {NO_TYPES}")
        places = choose([str(name) for name in data.columns], columns, "the table")
        rows = as_source(getattr(data, "iloc", data)[:, list(places)])
    elif len(getattr(data, "shape", ())) == 2:
        if columns is not None:
            data = data[:, list(columns)]
        return as_source(data) or data, data.shape[1], data.shape[1], data.shape[0]
    else:
        raise BadParameterError("data", data, _WHOLE, advice=_STREAM)
    return rows, rows.features, len(rows.features), len(data)


def components_or_share(n_components: Any) -> tuple[Any, float | None]:
    """Return the number of components to release, and the share of the variance that is to replace it, if any."""
    if not isinstance(n_components, (float, np.floating)) or float(n_components).is_integer():
        return n_components if isinstance(n_components, (int, np.integer)) else int(n_components), None
    if not 0.0 < n_components < 1.0:
        raise BadParameterError("n_components", n_components, "an integer, or a share of the variance in (0, 1)")
    return 1, float(n_components)
